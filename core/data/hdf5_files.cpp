// Data sets in HDF5 files.
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/number_array.h"
#include "ulpscope/core/data/sample_array.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

class Hdf5Array : public SampleArray {
 public:
  Hdf5Array(const std::string& path, const std::string& name) : array_(path, name), source_(source_in(path, name)) {}
  const std::string& name() const override { return array_.label(); }
  const std::vector<int64_t>& shape() const override { return array_.shape(); }
  int64_t chunk() const override { return array_.chunk_rows(); }
  SourceInfo source() const override { return source_; }
  void read(int64_t first, int64_t count, double* values) const override { array_.read_rows(first, count, values); }

 private:
  hdf5::NumberArray array_;
  SourceInfo source_;
};

}  // namespace

DataSplits open_hdf5(const DataSettings& settings, const DataUse& use) {
  const auto open = [](const std::string& path, const std::string& inputs, const std::string& targets) {
    return ArrayPair{std::make_shared<Hdf5Array>(path, inputs), std::make_shared<Hdf5Array>(path, targets)};
  };
  const auto either = [](const std::string& name, const std::string& otherwise) { return name.empty() ? otherwise : name; };
  const std::string inputs = either(settings.inputs, "inputs"), targets = either(settings.targets, "targets");
  ArrayPair train = open(settings.path, inputs, targets), test;
  if (!settings.test_path.empty() || !settings.test_inputs.empty()) {
    test = open(either(settings.test_path, settings.path), either(settings.test_inputs, inputs),
                either(settings.test_targets, targets));
  }
  return open_arrays(settings, use, std::move(train), std::move(test));
}

}  // namespace ulpscope
