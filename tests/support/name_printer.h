// An observer that prints the name of every op that it sees.
#pragma once

#include <ostream>

#include "ulpscope/core/engine/observer.h"

namespace ulpscope {

class NamePrinter : public Observer {
 public:
  explicit NamePrinter(std::ostream& out) : out_(out) {}
  void after(const OpEvent& event) override { out_ << event.op.name << '\n'; }

 private:
  std::ostream& out_;
};

}  // namespace ulpscope
