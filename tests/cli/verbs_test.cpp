// The table of verbs, from which help and parsing come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/cli/help.h"
#include "ulpscope/cli/parser.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Verbs, AreDescribedWhole) {
  std::set<std::string> names;
  for (const Verb& verb : verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    EXPECT_FALSE(verb.summary.empty()) << verb.name;
    EXPECT_FALSE(verb.examples.empty()) << verb.name;
    EXPECT_THAT(overview(verbs()), HasSubstr("  " + verb.name + " "));
    const std::string help = verb_help(verb);
    std::set<std::string> options{"--help", "-h"};
    for (const OptionSpec& option : verb.options) {
      EXPECT_TRUE(options.insert(option.name).second) << verb.name << " " << option.name;
      EXPECT_THAT(option.name, ::testing::StartsWith("--"));
      if (!option.short_name.empty()) {
        EXPECT_TRUE(options.insert(option.short_name).second) << option.short_name;
      }
      EXPECT_FALSE(option.meaning.empty()) << option.name;
      EXPECT_THAT(help, HasSubstr(option.name));
      for (const std::string& choice : option.choices) EXPECT_THAT(help, HasSubstr(choice));
    }
    for (const Example& example : verb.examples) EXPECT_THAT(help, HasSubstr(example.command));
  }
}

// Every example of every verb is a command line that parses.
TEST(Verbs, ExamplesParse) {
  for (const Verb& verb : verbs()) {
    for (const Example& example : verb.examples) {
      std::vector<std::string> words;
      std::istringstream line(example.command);
      for (std::string word; line >> word && word != ">" && word != "|";) words.push_back(word);
      ASSERT_GE(words.size(), 2u);
      EXPECT_EQ(words[0], "ulpscope");
      words.erase(words.begin());
      EXPECT_EQ(parse(verbs(), words).verb, &verb) << example.command;
    }
  }
}

int no_run(const Arguments&) { return 0; }

const std::vector<Verb>& sample_verbs() {
  static const std::vector<Verb> sample{{"verb",
                                         "a verb",
                                         "",
                                         {{"TRACE", "a trace"}},
                                         {{"--list", "-l", "NAME", "names", "", {"a", "b", "c"}, true},
                                          {"--number", "", "N", "a number"},
                                          {"--set", "", "K=V", "settings"},
                                          {"--flag", "", "", "a flag"}},
                                         {},
                                         no_run}};
  return sample;
}

TEST(Parser, TakesListsApartAndLeavesOthersWhole) {
  const Command command =
      parse(sample_verbs(), {"verb", "--list", "a,b", "-l", "c", "--set", "x=1,2", "--set=y=-3", "--flag", "t.h5", "--number=7"});
  EXPECT_THAT(command.arguments.list("--list"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(command.arguments.list("--set"), ElementsAre("x=1,2", "y=-3"));
  EXPECT_TRUE(command.arguments.has("--flag"));
  EXPECT_EQ(command.arguments.positional(0), "t.h5");
  EXPECT_EQ(command.arguments.integer("--number", 0), 7);
  const Command plain = parse(sample_verbs(), {"verb", "t.h5"});
  EXPECT_FALSE(plain.arguments.has("--flag"));
  EXPECT_FALSE(plain.arguments.integer("--number", 0));
  EXPECT_EQ(plain.arguments.text("--set", "none"), "none");
}

TEST(Parser, TakesChoicesInAnyCase) {
  EXPECT_THAT(parse(sample_verbs(), {"verb", "--list", "A,b", "t.h5"}).arguments.list("--list"), ElementsAre("a", "b"));
}

TEST(Parser, TakesNegativeNumbersForNumbers) {
  const std::vector<Verb> verbs{
      {"verb", "a verb", "", {{"VALUE", "a number", true, {}, true, true}}, {{"--number", "-n", "N", "a number"}}, {}, no_run}};
  const Command command = parse(verbs, {"verb", "-inf", "1", "-n", "-3", "-.5", "-NaN", "--", "-x"});
  EXPECT_THAT(command.arguments.positionals(), ElementsAre("-inf", "1", "-.5", "-NaN", "-x"));
  EXPECT_EQ(command.arguments.text("--number"), "-3");
  EXPECT_THROW(parse(verbs, {"verb", "-info"}), Error);
  EXPECT_THROW(parse(sample_verbs(), {"verb", "-inf"}), Error) << "a file";
}

TEST(Parser, RefusesWhatItDoesNotKnow) {
  const auto message = [](std::vector<std::string> words) -> std::string {
    try {
      parse(sample_verbs(), std::move(words));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({"verb"}), HasSubstr("TRACE"));
  EXPECT_THAT(message({"verb", "t.h5", "--list", "a,,b"}), HasSubstr("--list"));
  EXPECT_THAT(message({"verb", "t.h5", "--list", "d"}), HasSubstr("a, b or c"));
  EXPECT_THAT(message({"verb", "t.h5", "--falg"}), HasSubstr("did you mean '--flag'?"));
  EXPECT_THAT(message({"verb", "t.h5", "u.h5"}), HasSubstr("u.h5"));
  EXPECT_THAT(message({"verb", "t.h5", "--number"}), HasSubstr("--number needs a value (N)"));
  EXPECT_THAT(message({"verb", "t.h5", "--flag=no"}), HasSubstr("--flag takes no value"));
  EXPECT_THAT(message({"verbs", "t.h5"}), HasSubstr("did you mean 'verb'?"));
}

}  // namespace
}  // namespace ulpscope::cli
