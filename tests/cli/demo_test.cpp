// `ulpscope demo`: what it shows, what it leaves, and that all of it can be typed again.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/support/project_files.h"
#include "tests/support/python.h"
#include "train_fixture.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Demo : public Train {
 protected:
  Result demo(std::vector<std::string> arguments = {}, RunOptions options = {}) {
    return run_verb("demo", std::move(arguments), std::move(options));
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  // The commands that it shows, those behind the last run included.
  static std::vector<std::string> commands_of(const std::string& out) {
    std::vector<std::string> commands;
    for (const std::string& line : lines_of(out))
      for (const char* before : {"$ ", "  "})
        if (line.starts_with(std::string(before) + "ulpscope ")) commands.push_back(line.substr(2));
    return commands;
  }
  // The exit code of a shell that runs it in the folder.
  int type(const std::string& command, const std::string& out = "/dev/null") {
    const std::string path = std::filesystem::path(program_file()).parent_path().string();
    const int status = std::system(
        ("cd '" + folder_.path() + "' && PATH='" + path + "':\"$PATH\" && " + command + " > '" + out + "' 2> /dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  Json report(const std::string& trace) { return Json::parse(run_verb("report", {trace, "--json"}).out); }
};

TEST_F(Demo, EndsWithTheRepairedRun) {
  const Result result = demo();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::vector<std::string> commands = commands_of(result.out);
  ASSERT_THAT(commands, SizeIs(7));
  EXPECT_EQ(commands[0], "ulpscope train overflow --threads 1 -o ulpscope-demo/broken.h5 --force");
  EXPECT_EQ(commands[1], "ulpscope report ulpscope-demo/broken.h5 -o ulpscope-demo/broken.html --force");
  EXPECT_EQ(commands[2], "ulpscope nan ulpscope-demo/broken.h5 --only fixes");
  EXPECT_THAT(commands[3],
              AllOf(StartsWith("ulpscope train overflow --threads 1 --set "), EndsWith(" -o ulpscope-demo/repaired.h5 --force")));
  const size_t broken = result.out.find("\nBROKEN: "), repaired = result.out.rfind("\nOK: ");
  ASSERT_NE(broken, std::string::npos);
  ASSERT_NE(repaired, std::string::npos);
  EXPECT_LT(broken, repaired);
  EXPECT_EQ(result.out.find("BROKEN: ", repaired), std::string::npos);

  // The traces say the same.
  EXPECT_EQ(report("ulpscope-demo/broken.h5")["verdict"], "broken");
  const Json healthy = report("ulpscope-demo/repaired.h5");
  EXPECT_EQ(healthy["verdict"], "ok");
  EXPECT_THAT(healthy["causes"], IsEmpty());

  // The change is the first that trials verified.
  const Json nan = Json::parse(run_verb("nan", {"ulpscope-demo/broken.h5", "--json", "--budget=1000000000"}).out);
  std::string verified;
  for (const Json& table : nan["tables"])
    if (table["name"] == "fixes")
      for (const Json& row : table["rows"])
        if (verified.empty() && row["values"]["result"] == "verified") verified = row["values"]["change"];
  // "4.out in FP32: autocast.modules."4.out" = "fp32"", as the command line has it.
  ASSERT_NE(verified.find(": "), std::string::npos) << verified;
  std::string setting = verified.substr(verified.find(": ") + 2);
  setting.erase(std::remove(setting.begin(), setting.end(), '"'), setting.end());
  ASSERT_NE(setting.find(" = "), std::string::npos) << setting;
  setting.replace(setting.find(" = "), 3, "=");
  EXPECT_THAT(commands[3], HasSubstr("--set " + setting + " -o ")) << verified;
}

TEST_F(Demo, LeavesFilesAndCommandsThatRunAgain) {
  const Result result = demo({"-o", "a folder/it's here"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(file("a folder/it's here"))) files.insert(entry.path().filename());
  EXPECT_EQ(files, (std::set<std::string>{"broken.h5", "broken.html", "repaired.h5"}));
  for (const std::string& command : commands_of(result.out)) EXPECT_EQ(type(command), 0) << command;
}

// Read by h5py alone: losses are finite until the step that `nan` names, and never again; in the repaired run all are.
TEST_F(Demo, LossesAreAsItSays) {
  const std::string python = find_python("h5py");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py";
  const Result result = demo();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  write_file(
      file("losses.py"),
      "import h5py, math, sys\n"
      "for name in ('broken', 'repaired'):\n"
      "    with h5py.File(f'ulpscope-demo/{name}.h5') as trace:\n"
      "        losses, skipped = trace['steps/loss'][()], trace['steps/skipped'][()]\n"
      "    finite = [math.isfinite(loss) for loss in losses]\n"
      "    print(finite.index(False) if False in finite else -1, any(finite[finite.index(False):]) if False in finite else '-',\n"
      "          sum(bool(step) for step in skipped))\n");
  ASSERT_EQ(type(python + " losses.py", file("printed")), 0);
  const std::vector<std::string> lines = lines_of(read_file(file("printed")));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0], "9 False 11");
  EXPECT_EQ(lines[1], "-1 - 0");
  EXPECT_THAT(result.out, HasSubstr("in 11 of 20 steps"));
}

// One that was interrupted left files: they are its own.
TEST_F(Demo, ReplacesWhatItLeftInItsOwnFolder) {
  ASSERT_EQ(demo().exit_code, 0);
  write_file(file("ulpscope-demo/notes"), "mine");
  std::filesystem::remove(file("ulpscope-demo/repaired.h5"));
  const Result again = demo();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(std::filesystem::exists(file("ulpscope-demo/repaired.h5")));
  EXPECT_EQ(read_file(file("ulpscope-demo/notes")), "mine");
}

TEST_F(Demo, LeavesWhatIsNotItsOwnAlone) {
  std::filesystem::create_directory(file("mine"));
  write_file(file("mine/broken.h5"), "mine");
  write_file(file("mine/notes"), "mine");
  const Result refused = demo({"-o", "mine"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            "ulpscope: the folder 'mine' exists and is not empty: --force replaces files of the same names in it, -o names another "
            "one\n");
  EXPECT_EQ(refused.out, "");
  // What is no trace is not replaced by one.
  const Result forced = demo({"-o", "mine", "--force"});
  EXPECT_EQ(forced.exit_code, 2) << forced.err;
  EXPECT_THAT(lines_of(forced.err), SizeIs(1));
  EXPECT_EQ(read_file(file("mine/broken.h5")), "mine");
  std::filesystem::remove(file("mine/broken.h5"));
  EXPECT_EQ(demo({"-o", "mine", "--force"}).exit_code, 0);
  EXPECT_EQ(demo({"-o", "mine", "--force"}).exit_code, 0);
  EXPECT_EQ(read_file(file("mine/notes")), "mine");

  write_file(file("file"), "mine");
  const Result no_folder = demo({"-o", "file", "--force"});
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_EQ(no_folder.err, "ulpscope: 'file' exists and is no folder: -o names another place\n");
  EXPECT_EQ(read_file(file("file")), "mine");
  const Result nowhere = demo({"-o", "/proc/nowhere/demo"});
  EXPECT_EQ(nowhere.exit_code, 4);
  EXPECT_THAT(nowhere.err, StartsWith("ulpscope: cannot create the folder '/proc/nowhere/demo': "));
}

TEST_F(Demo, SaysWhereNothingIsRecordedThatCouldBeRepaired) {
  RunOptions limited;
  limited.file_limit = 1000;
  const Result result = demo({}, limited);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.out, Not(HasSubstr("OK: ")));
  EXPECT_THAT(lines_of(result.err).back(), StartsWith("ulpscope: ")) << result.err;
}

TEST_F(Demo, OnATerminal) {
  RunOptions terminal;
  terminal.terminal = true;
  terminal.environment = {"NO_COLOR=1", "TERM=dumb"};
  const Result plain = demo({}, terminal);
  EXPECT_EQ(plain.exit_code, 0) << plain.out;
  EXPECT_THAT(plain.out, Not(HasSubstr("\033")));
  terminal.environment = {"TERM=xterm"};
  const Result colored = demo({"--force"}, terminal);
  EXPECT_EQ(colored.exit_code, 0) << colored.out;
  EXPECT_THAT(colored.out,
              AllOf(HasSubstr("\033[1m$ ulpscope nan ulpscope-demo/broken.h5 --only fixes\033[0m"), HasSubstr("trying ")));
}

// A new schema of traces makes them unreadable: the commands in examples/README.md make them again.
TEST(Examples, ReportAsTheirReadmeSays) {
  const std::string examples = project_file("examples/"), again = "made again by the commands in examples/README.md";
  const auto report = [&](const std::string& trace) { return run_program({"report", examples + "traces/" + trace}); };
  const Result broken = report("nan_at_step_9.h5");
  EXPECT_EQ(broken.exit_code, 0) << broken.err << again;
  EXPECT_THAT(broken.out,
              AllOf(StartsWith("BROKEN: "), HasSubstr("11 of 20 steps"),
                    HasSubstr("FP16 overflow in the forward pass: `blocks.11.skip`"), HasSubstr("range.values_overflow")))
      << again;
  const Result repaired = report("repaired.h5");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err << again;
  EXPECT_THAT(repaired.out, StartsWith("OK: ")) << again;
  EXPECT_THAT(read_file(examples + "reports/nan_at_step_9.html"), HasSubstr("11 of 20 steps")) << again;
}

}  // namespace
}  // namespace ulpscope::cli_test
