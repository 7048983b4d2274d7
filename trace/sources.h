// Where the samples of batches come from: from a number in table batches to the file, and the place in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/trace/records.h"

namespace ulpscope {

class Snapshot;

// Where what one source has of a sample is.
struct SamplePlace {
  std::string part;    // "inputs", "targets", or "": both
  std::string file;    // or "": it was generated, or is not known
  std::string inside;  // the data set within an HDF5 file, the generator's name, or ""
  std::string columns;
  std::optional<uint64_t> row;   // from 0; of a table as text, of those with numbers: neither its header nor an empty line is one
  std::optional<uint64_t> byte;  // at which it begins in the file

  // "inputs in data.csv, row 137 (from 0), columns 0 to 3"; "" where neither the file nor a generator is known.
  std::string text() const;
};

struct FoundSample {
  std::string name;                 // of the sample: "sample 5 of train"
  std::vector<SamplePlace> places;  // one for each part that the sources have of it
  std::string problem;              // why there are none, or why they lack something; or "". What a producer should not write

  // What is known of one of the sample's elements: the column that has it, where just one place may have as many columns as the
  // sample has elements; else all places.
  FoundSample narrowed_to(uint64_t element, uint64_t elements) const;
  // One line: the name, and the places or the problem.
  std::string text() const;
};

class SampleFinder {
 public:
  // Those of one trace: in each part of a run (Snapshot::of_part) numbers may mean other data.
  explicit SampleFinder(std::vector<SourceInfo> sources);

  FoundSample find(uint32_t source, uint64_t sample) const;
  FoundSample find(const BatchRow& row) const { return find(row.source, row.sample); }

 private:
  std::vector<SourceInfo> sources_;  // by number, part and first sample
};

// A row of table batches of the run, or of one rank of it, with the sources of the part that the row is from.
FoundSample find_sample(const Snapshot& run, const BatchRow& row);

}  // namespace ulpscope
