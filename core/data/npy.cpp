#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/data/npy_file.h"
#include "ulpscope/core/data/raw_array.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

std::shared_ptr<const SampleArray> open_array(const std::string& path) {
  NpyFile array = open_npy_file(path);
  const std::optional<NumberType> type = parse_number_type(array.type);
  if (!type || !is_readable(*type)) {
    throw unreadable_error("{}: expected float16 to float64, int8 to int64, uint8 to uint64 or bool, found the type '{}'", path,
                           one_line(array.type));
  }
  if (array.shape.empty()) throw unreadable_error("{}: expected an array, found a single value", path);
  return std::make_shared<RawArray>(std::move(array.file), path, array.offset, *type, std::move(array.shape));
}

ArrayPair open_pair(const std::string& inputs, const std::string& targets) { return {open_array(inputs), open_array(targets)}; }

}  // namespace

DataSplits open_npy(const DataSettings& settings, const DataUse& use) {
  ArrayPair train = open_pair(settings.inputs, settings.targets), test;
  if (!settings.test_inputs.empty()) test = open_pair(settings.test_inputs, settings.test_targets);
  return open_arrays(settings, use, std::move(train), std::move(test));
}

}  // namespace ulpscope
