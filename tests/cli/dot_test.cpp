// `ulpscope dot` as its users run it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "child_process.h"
#include "tests/support/hardware_results.h"
#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/hdf5/hdf5.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

class DotCommand : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    write_file(folder_.file(name), text);
    return folder_.file(name);
  }
  static Json table(const Json& report, const std::string& name) {
    for (const Json& candidate : report["tables"])
      if (candidate["name"] == name) return candidate;
    ADD_FAILURE() << "no table " << name;
    return {};
  }
  static Json cell(const Json& table, size_t row, const std::string& column) { return table["rows"].at(row)["values"].at(column); }
  static Result run(const std::string& file, std::vector<std::string> options) {
    options.insert(options.begin(), {"dot", file});
    return run_program(options);
  }
  // One line that says so, and nothing else.
  static void expect_error(const std::string& file, const std::vector<std::string>& options, int code, const std::string& message) {
    const Result result = run(file, options);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  }

  const std::vector<std::string> fp16_{"--gpu", "v100", "--input", "fp16"};
  // 1.5 * 2 + 0.5 * 0.5 + 1 = 4.25; 2^12 * 2^12 + 1 * 1 - 2^24, where V100 loses the 1, which is 2^-24 of the largest term.
  const std::string rows_ =
      "# a, b, c, d\n3fc00000,3f000000,40000000,3f000000,3f800000,40880000\n"
      "45800000,3f800000,45800000,3f800000,cb800000,3f800000\n";
  TemporaryFolder folder_;
};

TEST_F(DotCommand, PrintsResults) {
  const Result result = run(write("rows.csv", rows_), fp16_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("4.25"));
  EXPECT_THAT(result.out, HasSubstr("0x40880000"));
  std::vector<std::string> json = fp16_;
  json.push_back("--json");
  const Json report = Json::parse(run(write("rows.csv", rows_), json).out);
  EXPECT_EQ(report["rows"], 2);
  EXPECT_EQ(report["generation"], "volta");
  EXPECT_FALSE(report.contains("mismatches"));
  EXPECT_EQ(cell(table(report, "results"), 1, "encoding"), "0x00000000");
  json.insert(json.end(), {"--output", "fp16"});
  EXPECT_EQ(cell(table(Json::parse(run(write("rows.csv", rows_), json).out), "results"), 0, "encoding"), "0x4440");
}

TEST_F(DotCommand, ChecksResultsOfTheFile) {
  const std::string plain = write("rows.csv", rows_), zipped = folder_.file("rows.csv.gz");
  const gzFile file = gzopen(zipped.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, rows_.data(), static_cast<unsigned>(rows_.size())), static_cast<int>(rows_.size()));
  gzclose(file);
  for (const std::string& path : {plain, zipped}) {
    const Result v100 = run(path, {"--gpu", "v100", "--input", "fp16", "--check", "--json"});
    EXPECT_EQ(v100.exit_code, 1) << v100.err;
    EXPECT_EQ(Json::parse(v100.out)["mismatches"], 1);
    EXPECT_EQ(table(Json::parse(v100.out), "results")["rows"].size(), 1u);
    EXPECT_EQ(cell(table(Json::parse(v100.out), "results"), 0, "row"), 1);
    const Result a100 = run(path, {"--gpu", "a100", "--input", "fp16", "--check", "--json"});
    EXPECT_EQ(a100.exit_code, 0) << a100.err;
    EXPECT_EQ(Json::parse(a100.out)["mismatches"], 0);
  }
  EXPECT_THAT(run(plain, {"--gpu", "v100", "--input", "fp16", "--check"}).out, HasSubstr("mismatches"));
  // Any NaN is a NaN; zeros have signs.
  const std::string special = write("special.csv", "7f800000,0,0,ffc12345\n80000000,3f800000,80000000,80000000\n");
  const Result result = run(special, {"--gpu", "v100", "--input", "fp16", "--check", "--json"});
  EXPECT_EQ(Json::parse(result.out)["mismatches"], 1) << "zeros that fill the row up are positive";
}

TEST_F(DotCommand, ExpectedResultsHaveEncodings) {
  // 0x3f800001 is no number of FP16, and stays the FP32 bit pattern that it is.
  const std::string path = write("rows.csv", "3f800000,3f800000,0,40000000\n3f800000,3f800000,0,3f800001\n");
  const Json wide = table(Json::parse(run(path, {"--gpu", "v100", "--input", "fp16", "--check", "--json"}).out), "results");
  EXPECT_EQ(cell(wide, 0, "expected_encoding"), "0x40000000");
  EXPECT_EQ(cell(wide, 0, "expected"), "2");
  EXPECT_EQ(cell(wide, 1, "expected"), "1.00000011920928955078125");
  const Json half =
      table(Json::parse(run(path, {"--gpu", "v100", "--input", "fp16", "--output", "fp16", "--check", "--json"}).out), "results");
  EXPECT_EQ(cell(half, 0, "encoding"), "0x3C00");
  EXPECT_EQ(cell(half, 0, "expected_encoding"), "0x4000");
  EXPECT_EQ(cell(half, 1, "expected_encoding"), "0x3F800001");
}

std::string zip(const std::string& path, const std::string& text) {
  const gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  return read_file(path);
}

Result run_with_input(const std::vector<std::string>& arguments, const std::string& input) {
  RunOptions options;
  options.input = input;
  return run_program(arguments, options);
}

TEST_F(DotCommand, ReadsPipesFromTheirBeginning) {
  const std::string zipped = zip(folder_.file("rows.csv.gz"), rows_);
  for (const std::string& input : {rows_, zipped}) {
    for (const char* file : {"-", "/dev/stdin", "/dev/fd/0"}) {
      const Result result = run_with_input({"dot", file, "--gpu", "a100", "--input", "fp16", "--check", "--json"}, input);
      EXPECT_EQ(result.exit_code, 0) << file << result.err;
      EXPECT_EQ(Json::parse(result.out)["rows"], 2) << file;
    }
  }
  const Result bad = run_with_input({"dot", "-", "--gpu", "v100", "--input", "fp16"}, "0,0,0\n0,1.5,0\n");
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("standard input:2:2: expected an FP32 bit pattern"));
  const Result hdf5 = run_with_input({"dot", "-", "--gpu", "v100", "--input", "fp16"}, "\x89HDF\r\n\x1a\n");
  EXPECT_EQ(hdf5.exit_code, 3);
  EXPECT_THAT(hdf5.err, HasSubstr("standard input: HDF5 data in a pipe, expected a file"));
}

TEST_F(DotCommand, ReadsFilesOfSeveralCompressedParts) {
  const std::string first = zip(folder_.file("first.gz"), rows_), path = folder_.file("rows.csv.gz");
  const auto rows = [&](const std::string& bytes) {
    write_file(path, bytes);
    const Result result = run(path, {"--gpu", "v100", "--input", "fp16", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["rows"];
  };
  EXPECT_EQ(rows(first + first), 4);
  EXPECT_EQ(rows(first + std::string(1000, '\0')), 2) << "padding, as of tapes";
  EXPECT_EQ(rows(first + zip(folder_.file("none.gz"), "")), 2);
  for (const char* junk : {"3f800000,0,0\n", "\x1f", "x"})
    expect_error(write("junk.csv.gz", first + junk), fp16_, 3, "damaged gzip data (bytes follow that are not compressed)");
  expect_error(write("cut.csv.gz", first.substr(0, first.size() - 3)), fp16_, 3, "damaged gzip data (the file is truncated)");
}

TEST_F(DotCommand, PassesOverARowOfNames) {
  for (const char* names : {"a,b,c,d", "a0,b0,c,result", "A[0],B[0],accumulator,D", "\"a\",b_0,_c,deadbeefs"}) {
    const Result result = run(write("rows.csv", std::string("# x\n") + names + "\n3f800000,3f800000,0,3f800000\n"),
                              {"--gpu", "v100", "--input", "fp16", "--check", "--json"});
    EXPECT_EQ(result.exit_code, 0) << names << result.err;
    EXPECT_EQ(Json::parse(result.out)["rows"], 1) << names;
  }
  // Bit patterns all, though with letters only.
  EXPECT_EQ(Json::parse(
                run(write("rows.csv", "ffffffff,ffffffff,ffffffff\n"), {"--gpu", "v100", "--input", "fp16", "--json"}).out)["rows"],
            1);
  expect_error(write("bad.csv", "a,b,c\n"), fp16_, 3, "expected rows of FP32 bit patterns, found none");
  expect_error(write("bad.csv", "a,b,c\na,x,c\n"), fp16_, 3, ":2:2: expected an FP32 bit pattern");
  expect_error(write("bad.csv", "1.5,2.5,x\n"), fp16_, 3, ":1:1: expected an FP32 bit pattern");
  expect_error(write("bad.csv", "a,b,c\n0,0,0,0\n"), fp16_, 3, ":2: expected 3 fields as in the first row, found 4");
}

TEST_F(DotCommand, ResultsOfHardwareHaveNoMismatches) {
  const HardwareResults results = hardware_results("rtx1000ada_e4m3_fp16_k32");
  const Result e4m3 = run(results.path, {"--gpu", "rtx1000ada", "--input", "e4m3", "--output", "fp16", "--check", "--json"});
  ASSERT_EQ(e4m3.exit_code, 0) << e4m3.err;
  EXPECT_EQ(Json::parse(e4m3.out)["rows"], results.rows);
  const Result tf32 = run(hardware_results("a100_tf32_fp32_k4").path, {"--gpu", "a100", "--input", "tf32", "--check"});
  EXPECT_EQ(tf32.exit_code, 0) << tf32.err;
}

TEST_F(DotCommand, ExplainsEachTerm) {
  const std::string path = write("rows.csv", rows_);
  const Result result = run(path, {"--gpu", "v100", "--input", "fp16", "--explain", "1", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json sum = table(Json::parse(result.out), "sum_0");
  ASSERT_EQ(sum["rows"].size(), 5u);  // 4 products of a block, and C
  const auto one = [&](const char* column) { return cell(sum, 1, column); };
  const auto accumulator = [&](const char* column) { return cell(sum, 4, column); };
  EXPECT_EQ(one("term"), "a b [1]");
  EXPECT_EQ(one("value"), "1");
  EXPECT_EQ(one("exponent"), 0);
  EXPECT_EQ(one("shift"), 24);
  EXPECT_EQ(one("bits"), "+00." + std::string(23, '0') + "|1");
  EXPECT_EQ(one("cut_off"), "1");
  EXPECT_EQ(accumulator("term"), "accumulator");
  EXPECT_EQ(accumulator("bits"), "-01." + std::string(23, '0') + "|");
  EXPECT_EQ(accumulator("cut_off"), "0");
  // Passes over pairs, and C at the end.
  const Json passes = Json::parse(run(path, {"--gpu", "h100", "--input", "e5m2", "--explain", "0", "--json"}).out);
  EXPECT_EQ(cell(table(passes, "sum_1"), 0, "term"), "a b [2]");
  EXPECT_EQ(cell(table(passes, "sum_2"), 1, "value"), "1");
  expect_error(path, {"--gpu", "v100", "--input", "fp16", "--explain", "2"}, 2, "has the rows 0 to 1");
}

TEST_F(DotCommand, ReadsHdf5WithScales) {
  const std::string path = folder_.file("rows.h5");
  {
    hdf5::File file = hdf5::File::create(path, path);
    const auto add = [&](const char* name, std::vector<uint64_t> shape, const std::vector<float>& values) {
      file.create_array(name, ElementType::f32, shape).write_all(values.data());
    };
    std::vector<float> a(2 * 40, 0), b(2 * 40, 1);
    a[0] = 3;
    a[39] = -1;  // the second scale's
    a[40] = 6;
    add("a", {2, 40}, a);
    add("b", {2, 40}, b);
    add("c", {2}, {0.25f, -1});
    add("d", {2}, {0.25f + 6 - 8, 2});
    add("a_scale", {2, 2}, {128, 130, 126, 0});
    add("b_scale", {2, 2}, {127, 127, 127, 0});
    file.close();
  }
  for (const char* kind : {"mx", "mxfp4"}) {
    const Result result = run(path, {"--gpu", "b200", "--input", "e2m1", "--instruction", "tcgen05", "--scales", kind, "--check"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  expect_error(path, {"--gpu", "b200", "--input", "e2m1", "--instruction", "tcgen05"}, 2, "has scales, a_scale and b_scale");
  expect_error(path, {"--gpu", "b200", "--input", "e2m1", "--instruction", "tcgen05", "--scales", "nvfp4"}, 3,
               "a_scale: expected 2 rows of 3 scales, one for 16 elements of 40 in a row, found 2 of 2");
  expect_error(write("rows.csv", rows_), {"--gpu", "b200", "--input", "e2m1", "--instruction", "tcgen05", "--scales", "mx"}, 2,
               "is CSV, which has no scales");
}

// 1.5 * 2 + 0.25 * -4 + 1 = 3, as values and as encodings.
TEST_F(DotCommand, Hdf5IntegersAreEncodings) {
  const std::string python = find_python("h5py");
  if (python.empty()) GTEST_SKIP() << "no python3 has h5py";
  const std::string path = folder_.file("rows.h5");
  const auto write_set = [&](const std::string& text) {
    const std::string script = write("write.py", "import h5py, numpy\nwith h5py.File(r'" + path + "', 'w') as f:\n" + text);
    ASSERT_EQ(std::system(("'" + python + "' '" + script + "'").c_str()), 0);
  };
  const auto set = [](const char* name, const char* type, const char* values) {
    return fmt::format("  f.create_dataset('{}', data=numpy.array({}, '{}'))\n", name, values, type);
  };
  const std::string fp16 = set("a", "u2", "[[0x3E00, 0x3400]]") + set("b", "u2", "[[0x4000, 0xC400]]"),
                    c32 = set("c", "u4", "[0x3F800000]"), d32 = set("d", "u4", "[0x40400000]");
  const auto check = [&](const std::string& text, std::vector<std::string> options) {
    write_set(text);
    options.push_back("--check");
    const Result result = run(path, options);
    EXPECT_EQ(result.exit_code, 0) << text << result.out << result.err;
  };
  check(fp16 + c32 + d32, {"--gpu", "a100", "--input", "fp16"});
  check(fp16 + set("c", "u2", "[0x3C00]") + set("d", ">u2", "[0x4200]"), {"--gpu", "a100", "--input", "fp16", "--output", "fp16"});
  check(set("a", "f2", "[[1.5, 0.25]]") + set("b", "f8", "[[2, -4]]") + c32 + set("d", "f4", "[3]"),
        {"--gpu", "a100", "--input", "fp16"});
  check(set("a", "u2", "[[0x3FC0, 0x3E80]]") + set("b", "u2", "[[0x4000, 0xC080]]") + c32 + d32,
        {"--gpu", "a100", "--input", "bf16"});
  check(set("a", "u4", "[[0x3FC00000, 0x3E800000]]") + set("b", "u4", "[[0x40000000, 0xC0800000]]") + c32 + d32,
        {"--gpu", "a100", "--input", "tf32"});
  check(set("a", "u1", "[[0x3C, 0x28]]") + set("b", "u1", "[[0x40, 0xC4]]") + c32 + d32, {"--gpu", "l4", "--input", "e4m3,e5m2"});
  const auto bad = [&](const std::string& text, const std::vector<std::string>& options, const std::string& message) {
    write_set(text);
    expect_error(path, options, 3, message);
  };
  bad(set("a", "i4", "[[1, 2]]") + set("b", "u2", "[[1, 2]]") + c32, fp16_,
      "rows.h5: a: expected floating-point values, or encodings of fp16 as unsigned integers of 16 bits, found signed integers of "
      "32 bits");
  bad(fp16 + set("c", "u2", "[0x3C00]"), fp16_,
      "c: expected floating-point values, or encodings of fp32 as unsigned integers of 32 bits, found unsigned integers of 16 "
      "bits");
  bad(set("a", "u4", "[[1, 2]]") + set("b", "u2", "[[1, 2]]") + c32, fp16_,
      "a: expected floating-point values, or encodings of fp16 as unsigned integers of 16");
  bad(set("a", "u1", "[[1, 16]]") + set("b", "u1", "[[1, 2]]") + c32, {"--gpu", "rtx5090", "--input", "e2m1"},
      "a, row 0, element 1: expected an encoding of e2m1, of 4 bits, found 0x10");
  // Numbers that nobody has written, of which there may be any number.
  const std::string chunked = "  f.create_dataset('{}', ({}), 'f4', chunks=(1,{}))\n";
  bad(fmt::format(fmt::runtime(chunked), "a", "2**40, 2**40", "64") +
          fmt::format(fmt::runtime(chunked), "b", "2**40, 2**40", "64") + c32,
      fp16_, "rows.h5: a: expected 1099511627776 x 1099511627776 numbers, found 0 bytes of them in the file");
  bad(fmt::format(fmt::runtime(chunked), "a", "2**40, 1", "1") + fmt::format(fmt::runtime(chunked), "b", "2**40, 1", "1") + c32,
      fp16_, "rows.h5: a: expected 1099511627776 x 1 numbers, found 0 bytes of them in the file");
  const std::string whole = "  f.create_dataset('a', (1, 2**40, 2**40), 'f4')\n";
  bad(whole + set("b", "u2", "[[1, 2]]") + c32, fp16_,
      "a: expected 1 x 1099511627776 x 1099511627776 numbers, found 0 bytes of them in the file");
  const std::string long_row = "  f.create_dataset('a', (1, 2**24 + 1), 'u1', chunks=(1, 2**20), compression='gzip')[:] = 0\n";
  bad(long_row + set("b", "u2", "[[1, 2]]") + c32, fp16_, "a: expected rows of at most 16777216 numbers, found 1 x 16777217");
  bad(fp16, fp16_, "rows.h5 has no data set c: expected a, b, c and perhaps d, found a and b");
  bad(fp16 + c32, {"--gpu", "rtx5090", "--input", "e2m1", "--scales", "mx"},
      "has no data set a_scale: expected a_scale and b_scale");
}

TEST_F(DotCommand, BadFilesAreSaidToBe) {
  const auto bad = [&](const std::string& text, const std::string& message) {
    expect_error(write("bad.csv", text), fp16_, 3, "bad.csv" + message);
  };
  bad("", ": expected rows of FP32 bit patterns, found none");
  bad("# nothing\n", ": expected rows of FP32 bit patterns, found none");
  bad("0,0\n", ":1: expected a, b and c, at least 3 fields, found 2");
  bad("0,0,0\n0,0,0,0\n", ":2: expected 3 fields as in the first row, found 4");
  bad("# x\n0,0,0\n0,1.5,0\n", ":3:2: expected an FP32 bit pattern of up to 8 hexadecimal digits, found '1.5'");
  bad("0,,0\n", ":1:2: expected an FP32 bit pattern");
  bad("0,-1,0\n", ":1:2: expected an FP32 bit pattern");
  bad("0,123456789,0\n", ":1:2: expected an FP32 bit pattern");
  bad("0,\"0,0\n", ":2: a quote within a field, or one that is not closed");
  bad("0,3f800001,0\n", ":1: b[0]: expected a number of fp16, found 3f800001");
  bad("7f7fffff,0,0\n", ":1: a[0]: expected a number of fp16");
  const std::string path = write("rows.csv", "0,0,0\n");
  expect_error(path, {"--gpu", "v100", "--input", "fp16", "--check"}, 2, "rows.csv:1 has no results to compare with");
  expect_error(folder_.file("missing.csv"), fp16_, 3, "missing.csv: no such file");
  expect_error(folder_.path(), fp16_, 3, "a folder, expected a file of CSV or HDF5 data");
  expect_error(write("bad.h5", "\x89HDF\r\n\x1a\n and no more"), fp16_, 3, "bad.h5");
  expect_error(write("bad.csv.gz", "\x1f\x8b\x08 and no more"), fp16_, 3, "bad.csv.gz: damaged gzip data");
}

TEST_F(DotCommand, WhatAGpuDoesNotHaveIsSaid) {
  const std::string path = write("rows.csv", rows_);
  expect_error(path, {"--input", "fp16"}, 2, "dot needs --gpu: v100, t4, ");
  expect_error(path, {"--gpu", "v100"}, 2, "dot needs --input: fp16, bf16, ");
  expect_error(path, {"--gpu", "h10", "--input", "fp16"}, 2, "did you mean 'h100'?");
  expect_error(path, {"--gpu", "v101", "--input", "fp16"}, 2, "did you mean 'v100'?");
  EXPECT_EQ(run(path, {"--gpu", "GH200", "--input", "FP16", "--output", "FP16", "--instruction", "WGMMA"}).exit_code, 0);
  expect_error(path, {"--gpu", "h100", "--input", "e4m3", "--instruction", "tcgen05"}, 2,
               "e4m3 or e5m2 -> fp32 (instruction wgmma)");
  expect_error(path, {"--gpu", "h100", "--input", "e4m3,e5m2,e4m3"}, 2, "those of a and b, not 3");
}

}  // namespace
}  // namespace ulpscope::cli_test
