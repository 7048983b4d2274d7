// Runs `ulpscope train` in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "child_process.h"
#include "tests/support/temporary_folder.h"

namespace ulpscope::cli_test {

using Json = nlohmann::json;

class Train : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  Result run_verb(const std::string& verb, std::vector<std::string> arguments, RunOptions options = {}) {
    arguments.insert(arguments.begin(), verb);
    options.working_directory = folder_.path();
    return run_program(arguments, options);
  }
  Result train(std::vector<std::string> arguments, RunOptions options = {}) {
    return run_verb("train", std::move(arguments), std::move(options));
  }
  Json info(const std::string& trace) { return Json::parse(run_program({"info", trace, "--json"}).out); }

  TemporaryFolder folder_;
};

}  // namespace ulpscope::cli_test
