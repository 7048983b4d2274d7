// Capsules that were edited or damaged are refused, or what comes of them is told apart from what they say.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "capsule_fixture.h"
#include "tests/support/python.h"
#include "ulpscope/studies/replay.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using Capsules = CapsuleTest;

// The members with the samples, edited or damaged.
TEST_F(Capsules, EditedSamplesAreRefused) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  CapsuleOptions options = at_step(8, 3);
  options.keep_samples = true;
  train(experiment({"training.evaluation=never"}), options);
  struct Change {
    const char *code, *message;
    ErrorKind kind = ErrorKind::unreadable;
  };
  const std::vector<Change> changes{
      {"del file['data/inputs']; file.create_dataset('data/inputs', (36, 2**30, 2**30), 'f4', chunks=(1, 4, 4))",
       "'data/inputs' is [36, 1073741824, 1073741824], more than it can be"},
      {"del file['data/inputs']; file.create_dataset('data/inputs', (2**62, 2**62, 16), 'f4', chunks=(1, 4, 4))", "more than"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.zeros((36,) + (1,) * 9, 'f4')", "more than it can be"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.zeros(36, 'f4')", "its samples are [36]"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.float32(1)", "'data/inputs' is []"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.zeros((36, 1, 8, 8), 'f8')", "'data/inputs'"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.zeros((35, 1, 8, 8), 'f4')", "its samples are [35, 1, 8, 8], and"},
      {"del file['data/inputs']; file['data/inputs'] = numpy.zeros((36, 1, 8, 9), 'f4')", "is of another model", ErrorKind::usage},
      {"del file['data/targets']", "'data/targets' is missing"},
      {"del file['data']", "has no samples in it", ErrorKind::usage},
      {"file['data/targets'][3] = 10", "'data/targets' has 10, expected 0 to 9"},
      {"file['data/targets'][3] = -1", "'data/targets' has -1"},
      {"file['data'].attrs['classes'] = 2**40", "'classes' of 'data' is 1099511627776"},
      {"file['data'].attrs['classes'] = 0", "'data/targets'"},
      {"file['data'].attrs['input_indices'] = 5", "'data/inputs'"},
      {"file['data'].attrs['input_type'] = numpy.bytes_(b'f8')", "its samples are 'f8', expected f32, f16 or bf16"},
      {"del file['data'].attrs['input_type']", "it has no attribute 'input_type'"},
      {"file['data/inputs'][0, 0, 3, 3] += 1", "the data are not those of step"},
      {"file['steps/samples'][0] = 36", "have sample 36, and the data 36 samples", ErrorKind::usage},
  };
  std::string script =
      "import h5py, numpy, shutil\ndef change(name, what):\n    shutil.copy('capsule', name)\n"
      "    with h5py.File(name, 'a', libver='latest') as file:\n        exec(what, {'file': file, 'h5py': h5py, 'numpy': numpy})\n";
  for (size_t i = 0; i < changes.size(); ++i) script += fmt::format("change('{}', \"\"\"{}\"\"\")\n", i, changes[i].code);
  write_file(file("change.py"), script);
  ASSERT_EQ(std::system(fmt::format("cd {} && {} change.py", folder_.path(), python).c_str()), 0);
  for (size_t i = 0; i < changes.size(); ++i) {
    Trial changed;
    changed.capsule = file(std::to_string(i));
    EXPECT_THAT(refusal(changed, changes[i].kind), HasSubstr(changes[i].message)) << changes[i].code;
  }
  // Such data are nowhere else.
  try {
    ulpscope::train(parse_experiment(read_checkpoint_info(file("capsule")).experiment, "capsule"), {});
    FAIL() << "there is no capsule";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.kind = \"capsule\": these are the samples that a capsule holds"));
  }
}

// Capsules with checksums that fit, which hold what no run wrote, or one that is not the one they tell of.
TEST_F(Capsules, EditedCapsulesAreRefusedOrDiffer) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  train(experiment(), at_step(8, 3));
  struct Change {
    const char *code, *message;
  };
  const std::vector<Change> unreadable{
      {"del file['steps/loss']; file.create_dataset('steps/loss', (2**40,), 'f8', chunks=(2**17,))",
       "'steps/loss' is [1099511627776]"},
      {"del file['steps/samples']; file.create_dataset('steps/samples', (2**27,), 'i8', chunks=(2**17,))",
       "'steps/samples' is [134217728]"},
      {"del file['steps/samples']; file['steps/samples'] = numpy.zeros((3, 3), 'i8')", "'steps/samples' is [3, 3]"},
      {"del file['steps/loss']; file['steps/loss'] = numpy.zeros(0)", "'steps/loss' is [0]"},
      {"del file['steps/loss']; file['steps/loss'] = numpy.zeros(3)", "it has 3 losses, 6 scales"},
      {"del file['steps/scale']", "'steps/scale' is missing"},
      {"del file['steps/batch_hash']; file['steps/batch_hash'] = numpy.zeros(3, 'u8')", "and 3 hashes of batches"},
      {"file['steps/batch_size'][2] = 2**62", "batch 2 has 4611686018427387904 samples"},
      {"file['steps/batch_size'][2] = -1", "batch 2 has -1 samples"},
      {"file['steps/batch_size'][2] = 1", "of"},
      {"file['steps'].attrs['weights_fingerprint'] = numpy.bytes_(b'../../etc')", "'../../etc', expected a hexadecimal number"},
      {"file['steps'].attrs['threads'] = 2**40", "1099511627776, expected 1 to"},
      {"del file['steps'].attrs['machine']", "it has no attribute 'machine'"},
      {"del file['experiment']; file['experiment'] = numpy.frombuffer(b'no = [toml', 'u1')", ""},
      {"file['steps/batch_hash'][0] += 1", "the data are not those of step 3: the samples of its batch 0"},
      {"del file['experiment']; file['experiment'] = numpy.frombuffer(b'data.kind = \"exec\"', 'u1')", "data.kind"},
  };
  const std::vector<Change> usage{
      {"del file['steps']; file['steps'] = h5py.SoftLink('/optimizer')", "is a checkpoint without steps to run again"},
      {"file['steps/samples'][0] = 10**9", "the steps to run again have sample 1000000000, and the data 36 samples"},
      {"file['steps/samples'][0] = -1", "the steps to run again have sample -1"},
      {"file['parameters/..%2F..%2Fetc'] = numpy.zeros(3, 'f4')", "is of another model"},
      {"file['steps'].attrs['isa_asked'] = numpy.bytes_(b'; rm -rf')", "unknown instruction set"},
  };
  // These run, and are not what the capsule says.
  const std::vector<Change> different{{"file['steps/loss'][4] += 1e-12", "the loss of step 7 is another"},
                                      {"file['steps/scale'][2] = 2.0", "the loss scale of step 5 is another"},
                                      {"file['steps/skipped'][0] = 1", "step 3 was not skipped"},
                                      {"file['parameters/head.weight'][3, 3] += 0.01", "the loss of step 3 is another"},
                                      {"file['steps'].attrs['weights_fingerprint'] = numpy.bytes_(b'0' * 16)",
                                       "losses, loss scales and skipped steps are, but not the weights at the end"}};
  std::string script =
      "import h5py, numpy, shutil\ndef change(name, what):\n    shutil.copy('capsule', name)\n"
      "    with h5py.File(name, 'a', libver='latest') as file:\n        exec(what, {'file': file, 'h5py': h5py, 'numpy': numpy})\n";
  size_t count = 0;
  for (const auto* changes : {&unreadable, &usage, &different})
    for (const Change& change : *changes) script += fmt::format("change('{}', \"\"\"{}\"\"\")\n", count++, change.code);
  write_file(file("change.py"), script);
  ASSERT_EQ(std::system(fmt::format("cd {} && {} change.py", folder_.path(), python).c_str()), 0);
  count = 0;
  const auto of_next = [&] {
    Trial changed;
    changed.capsule = file(std::to_string(count++));
    return changed;
  };
  for (const Change& change : unreadable)
    EXPECT_THAT(refusal(of_next(), ErrorKind::unreadable), HasSubstr(change.message)) << change.code;
  for (const Change& change : usage) EXPECT_THAT(refusal(of_next(), ErrorKind::usage), HasSubstr(change.message)) << change.code;
  for (const Change& change : different) {
    const Trial changed = of_next();
    const TrialOutcome outcome = run(changed);
    EXPECT_FALSE(outcome.is_as_before()) << change.code;
    EXPECT_THAT(report_of(changed, outcome, {}, 0).title, HasSubstr(fmt::format(": NOT bit-equal: {}", change.message)));
  }
  // Ops are compared with the steps as they come again, which are not those of this capsule: the first of `different`.
  Trial by_op;
  by_op.capsule = file(std::to_string(unreadable.size() + usage.size()));
  by_op.by_op = true;
  const TrialOutcome compared = run(by_op);
  EXPECT_EQ(compared.original_differs_in, 7u);
  const Report report = report_of(by_op, compared, {}, 0);
  EXPECT_THAT(find_fact<std::string>(report, "original_did_not_come_again").value_or(""), HasSubstr("from step 7 on"));
}

TEST_F(Capsules, DamageIsNoticedOrChangesNothing) {
  train(experiment({"training.evaluation=never"}), at_step(3, 1));
  const std::string whole = read_file(file("capsule"));
  int noticed = 0;
  const auto examine = [&](const std::string& bytes, const std::string& what) {
    write_file(file("damaged"), bytes);
    Trial damaged;
    damaged.capsule = file("damaged");
    try {
      EXPECT_TRUE(run(damaged).is_as_before()) << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable) << what << ": " << error.what();
      ++noticed;
    }
  };
  for (size_t i = 1; i < 20; ++i) examine(whole.substr(0, whole.size() * i / 20), fmt::format("the first {}/20", i));
  EXPECT_EQ(noticed, 19);
  noticed = 0;
  for (size_t at = 0; at < whole.size(); at += whole.size() / 60) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    examine(damaged, fmt::format("byte {}", at));
  }
  EXPECT_GT(noticed, 10);
}

}  // namespace
}  // namespace ulpscope
