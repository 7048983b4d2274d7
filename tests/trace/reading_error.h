// How tests ask what is wrong with a trace.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sample_trace.h"
#include "ulpscope/base/error.h"

namespace ulpscope::trace_test {

// The error of reading all of a trace, one line, or "no error".
inline std::string reading_error(const std::string& path) {
  try {
    read_lines(Snapshot(path));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "no error";
}

}  // namespace ulpscope::trace_test
