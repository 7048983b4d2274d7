// The message of an Error that tells a caller what he did wrong.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ulpscope/base/error.h"

namespace ulpscope {

// "no error" where `body` throws none.
inline std::string usage_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace ulpscope
