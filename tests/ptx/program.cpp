#include "tests/ptx/program.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "tests/ptx/operations.h"
#include "ulpscope/base/error.h"

namespace ulpscope::ptx {
namespace {

// A word, a number, or another character.
struct Token {
  std::string_view text;
  int line;
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::vector<Token> tokens_of(std::string_view text) {
  const auto is_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
  };
  std::vector<Token> tokens;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c))) {
      at = end;
      continue;
    }
    if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '"') {
      end = std::min(text.find('"', end), text.size() - 1) + 1;
    } else if (is_of_word(c) || (c == '-' && end < text.size() && is_digit(text[end]))) {
      // "shared::cta" is one; of "label:" the colon is apart.
      while (end < text.size() && (is_of_word(text[end]) || text.substr(end, 2) == "::")) end += text[end] == ':' ? 2 : 1;
    }
    tokens.push_back({text.substr(at, end - at), line});
    at = end;
  }
  return tokens;
}

// "add", "rn", "f32"
std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

class Reader {
 public:
  Reader(Program& program, std::string_view text) : program_(program), tokens_(tokens_of(text)) { tokens_.push_back({"", 0}); }

  void read() {
    while (!token().empty()) {
      if (is(".version") || is(".target") || is(".address_size")) {
        skip_line();
      } else if (is(".shared")) {
        shared();
      } else if (is(".func") || is(".entry")) {
        function();
      } else if (!take(".visible") && !take(".weak") && !take(";")) {
        fail("is not known here");
      }
    }
    // Functions may be called before they are there.
    for (const auto& [caller, instruction, name] : calls_) {
      const auto found = numbers_.find(name);
      if (found == numbers_.end()) throw failed_error("no function {}", name);
      program_.functions[caller].code[instruction].target = found->second;
    }
  }

 private:
  std::string_view token() const { return tokens_[at_].text; }
  bool is(std::string_view text) const { return token() == text; }
  bool take(std::string_view text) {
    const bool is_there = is(text);
    if (is_there) ++at_;
    return is_there;
  }
  void expect(std::string_view text) {
    if (!take(text)) fail(fmt::format("stands where '{}' was expected", text));
  }
  std::string_view next() {
    if (token().empty()) fail("ends too early");
    return tokens_[at_++].text;
  }
  [[noreturn]] void fail(std::string_view what) const { throw failed_error("line {}: '{}' {}", tokens_[at_].line, token(), what); }
  void skip_line() {
    for (const int line = tokens_[at_].line; tokens_[at_].line == line;) ++at_;
  }
  void skip_statement() {
    while (next() != ";") {
    }
  }
  template <typename T>
  T number(std::string_view text, int base = 10) {
    T value{};
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (status != std::errc() || end != text.data() + text.size()) {
      --at_;
      fail("is no number");
    }
    return value;
  }

  struct Array {
    std::string name;
    int bytes, alignment;
  };
  // .align 8 .b8 name[136], or .b32 name
  Array array() {
    Array array{"", 0, 8};
    if (take(".align")) array.alignment = number<int>(next());
    array.bytes = bytes_of(next());
    array.name = next();
    if (take("[")) {
      array.bytes *= number<int>(next());
      expect("]");
    }
    return array;
  }
  // Of .b32, u16.
  int bytes_of(std::string_view type) {
    const size_t digits = std::min(type.find_first_of("0123456789"), type.size());
    return number<int>(type.substr(digits)) / 8;
  }
  static int aligned(int offset, int alignment) { return (offset + alignment - 1) / alignment * alignment; }

  void shared() {
    expect(".shared");
    const Array added = array();
    expect(";");
    if (shared_.contains(added.name)) return;  // what one function alone uses is in it
    constexpr int kBetween = 64;
    const int offset = aligned(static_cast<int>(program_.shared_bytes.size()) + kBetween, std::max(added.alignment, 16));
    shared_[added.name] = offset;
    program_.shared_bytes.resize(static_cast<size_t>(offset));
    program_.shared_bytes.resize(static_cast<size_t>(offset + added.bytes), true);
  }
  Function::Parameter in_frame() {
    expect(".param");
    const Array added = array();
    const int offset = aligned(made_.frame_bytes, added.alignment);
    frame_[added.name] = offset;
    made_.frame_bytes = offset + added.bytes;
    return {offset, added.bytes};
  }
  std::vector<Function::Parameter> parameters() {
    std::vector<Function::Parameter> all;
    if (!take("(")) return all;
    while (!take(")")) {
      all.push_back(in_frame());
      take(",");
    }
    return all;
  }

  void function() {
    made_ = {};
    registers_.clear(), constants_.clear(), frame_.clear(), labels_.clear(), branches_.clear();
    made_.is_kernel = next() == ".entry";
    made_.results = parameters();
    made_.name = next();
    made_.parameters = parameters();
    while (is(".maxntid") || is(".minnctapersm")) skip_line();
    if (take(";")) return;  // it comes later
    expect("{");
    for (int depth = 1; depth > 0;) {
      if (take("{")) {
        ++depth;
      } else if (take("}")) {
        --depth;
      } else {
        statement();
      }
    }
    for (const auto& [instruction, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw failed_error("{}: no label {}", made_.name, label);
      made_.code[instruction].target = found->second;
    }
    // What runs on behind the last instruction.
    Instruction end;
    end.kind = Kind::trap;
    end.line = tokens_[at_ - 1].line;
    made_.code.push_back(end);
    made_.registers = static_cast<int>(registers_.size());
    for (Instruction& instruction : made_.code)
      for (int& operand : instruction.operands)
        if (operand < 0) operand = made_.registers - 1 - operand;
    numbers_[made_.name] = static_cast<int>(program_.functions.size());
    program_.functions.push_back(std::move(made_));
  }

  void statement() {
    if (take(".reg")) return declare_registers();
    if (is(".shared")) return shared();
    if (is(".pragma")) return skip_statement();
    if (is(".param")) {
      in_frame();
      return expect(";");
    }
    if (tokens_[at_ + 1].text == ":") {
      if (!labels_.try_emplace(std::string(token()), static_cast<int>(made_.code.size())).second) fail("is a label twice");
      ++at_;
      return expect(":");
    }
    Instruction instruction;
    instruction.line = tokens_[at_].line;
    if (take("@")) {
      instruction.unless = take("!");
      instruction.guard = register_of(next());
    }
    read(instruction);
    expect(";");
    made_.code.push_back(instruction);
  }
  // .reg .b32 %r<12>, or .reg .pred name
  void declare_registers() {
    next();
    if (tokens_[at_ + 1].text != "<") register_of(token());
    skip_statement();
  }

  int register_of(std::string_view name) {
    return registers_.try_emplace(std::string(name), static_cast<int>(registers_.size())).first->second;
  }
  // Below 0 until it is known how many registers there are.
  int constant(Constant::Kind kind, Word value = 0) {
    const Constant wanted{kind, value};
    const auto [found, is_new] = constants_.try_emplace(wanted, -1 - static_cast<int>(made_.constants.size()));
    if (is_new) made_.constants.push_back(wanted);
    return found->second;
  }
  int operand() {
    const std::string_view text = next();
    if (text == "%tid.x") return constant(Constant::Kind::thread);
    if (text == "%ntid.x") return constant(Constant::Kind::threads);
    if (text == "%ctaid.x") return constant(Constant::Kind::block);
    if (text == "%nctaid.x") return constant(Constant::Kind::blocks);
    if (text.starts_with("0f") || text.starts_with("0d")) return constant(Constant::Kind::number, number<Word>(text.substr(2), 16));
    if (text[0] == '-') return constant(Constant::Kind::number, static_cast<Word>(number<int64_t>(text)));
    if (is_digit(text[0])) return constant(Constant::Kind::number, number<Word>(text));
    if (text[0] == '%' || registers_.contains(std::string(text))) return register_of(text);
    if (const auto found = shared_.find(text); found != shared_.end())
      return constant(Constant::Kind::shared, static_cast<Word>(found->second));
    --at_;
    const int offset = offset_in_frame();
    const bool is_of_kernel = made_.is_kernel && !made_.parameters.empty() && offset == made_.parameters[0].offset;
    return constant(is_of_kernel ? Constant::Kind::kernel : Constant::Kind::frame, static_cast<Word>(offset));
  }
  int offset_in_frame() {
    const auto found = frame_.find(token());
    if (found == frame_.end()) fail("is no operand");
    ++at_;
    return found->second;
  }
  void add_operand(Instruction& to, int operand) {
    if (to.count == Instruction::kMostOperands) fail("is one operand too many");
    to.operands[static_cast<size_t>(to.count++)] = operand;
  }
  // Vectors and addresses are taken apart.
  void operands(Instruction& to) {
    while (!is(";")) {
      if ((to.kind == Kind::shuffle || to.kind == Kind::shuffle_down) && take("|")) {
        next();  // whether the lane that is shuffled from is there, which is not used
      } else if (take("+")) {
        to.offset = number<int64_t>(next());
      } else if (!take("{") && !take("}") && !take("[") && !take("]") && !take(",")) {
        add_operand(to, operand());
      }
    }
  }

  void read(Instruction& to) {
    const std::string_view name = next();
    const auto parts = parts_of(name);
    const std::string_view what = parts[0];
    const auto modifier = [&](std::string_view text) { return std::find(parts.begin(), parts.end(), text) != parts.end(); };
    if (what == "bra") {
      to.kind = Kind::branch;
      branches_.emplace_back(made_.code.size(), next());
      return;
    }
    if (what == "call") return call(to);
    static const std::map<std::string_view, Kind> kinds{{"ret", Kind::leave},
                                                        {"trap", Kind::trap},
                                                        {"ld", Kind::load},
                                                        {"st", Kind::store},
                                                        {"mma", Kind::mma},
                                                        {"bar.warp.sync", Kind::warp_barrier},
                                                        {"bar.sync", Kind::barrier},
                                                        {"shfl.sync.down.b32", Kind::shuffle_down},
                                                        {"shfl.sync.idx.b32", Kind::shuffle},
                                                        {"vote.sync.ballot.b32", Kind::ballot},
                                                        {"redux.sync.add.u32", Kind::sum},
                                                        {"redux.sync.min.u32", Kind::smallest},
                                                        {"redux.sync.max.u32", Kind::largest},
                                                        {"fence.proxy.async.shared::cta", Kind::proxy_fence},
                                                        {"wgmma.fence.sync.aligned", Kind::wgmma_fence},
                                                        {"wgmma.commit_group.sync.aligned", Kind::wgmma_commit},
                                                        {"wgmma.wait_group.sync.aligned", Kind::wgmma_wait}};
    auto kind = kinds.find(name);
    if (kind == kinds.end()) kind = kinds.find(what);
    to.is_shared = modifier("shared");
    bool takes_apart = false;
    if (kind != kinds.end()) {
      to.kind = kind->second;
    } else if (name.starts_with("wgmma.mma_async.sync.aligned.")) {
      to.kind = Kind::wgmma;
    } else if (what == "atom" && parts.back()[0] == 'u' && (modifier("add") || modifier("max"))) {
      to.kind = modifier("add") ? Kind::add_to_memory : Kind::largest_to_memory;
    } else {
      // mov takes a register apart too, which is no move of one type.
      takes_apart = what == "mov" && is("{");
      to.compute = operation(takes_apart ? "split" + std::string(name.substr(what.size())) : std::string(name));
      if (to.compute == nullptr) {
        --at_;
        fail("is an instruction that is not known");
      }
    }
    const bool is_of_memory = to.kind == Kind::load || to.kind == Kind::store || what == "atom";
    if (is_of_memory) {
      to.bytes = bytes_of(parts.back());
      to.is_signed = parts.back()[0] == 's';
    }
    operands(to);
    if (takes_apart && to.count != 3) fail("follows other parts than two halves");
    if (to.kind == Kind::mma) to.matrix = {InstructionFamily::mma, factors(parts[7]), factors(parts[8]), sums(parts[6])};
    if (to.kind == Kind::wgmma) to.matrix = {InstructionFamily::wgmma, factors(parts[6]), factors(parts[7]), sums(parts[5])};
  }
  // call (result), name, (argument, ...)
  void call(Instruction& to) {
    to.kind = Kind::call;
    if (take("(")) {
      to.result = offset_in_frame();
      expect(")");
      expect(",");
    }
    calls_.push_back({program_.functions.size(), made_.code.size(), std::string(next())});
    if (!take(",")) return;
    expect("(");
    while (!take(")")) {
      add_operand(to, offset_in_frame());
      take(",");
    }
  }
  DType factors(std::string_view type) const {
    if (type == "f16") return DType::f16;
    if (type == "bf16") return DType::bf16;
    if (type == "tf32") return DType::f32;
    if (type == "e4m3") return DType::f8_e4m3;
    if (type == "e5m2") return DType::f8_e5m2;
    fail(fmt::format("follows factors in {}, which are not known", type));
  }
  DType sums(std::string_view type) const {
    if (type == "f16") return DType::f16;
    if (type == "f32") return DType::f32;
    fail(fmt::format("follows sums in {}, which are not known", type));
  }

  struct Call {
    size_t caller, instruction;
    std::string name;
  };

  Program& program_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  Function made_;
  std::map<std::string, int, std::less<>> registers_, frame_, labels_, numbers_, shared_;
  std::map<Constant, int> constants_;
  std::vector<std::pair<size_t, std::string>> branches_;
  std::vector<Call> calls_;
};

// Without spaces: ">>" is written as "> >" too.
std::string readable(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  std::string result = status == 0 ? text.get() : name;
  std::erase(result, ' ');
  return result;
}

}  // namespace

const Function& Program::kernel(const std::type_info& type) const {
  const std::string wanted = "::run_on_gpu<" + readable(type.name()) + ">(";
  for (const Function& function : functions)
    if (function.is_kernel && readable(function.name.c_str()).find(wanted) != std::string::npos) return function;
  throw failed_error("no kernel {}", readable(type.name()));
}

Program read_program(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) throw failed_error("{}: cannot be read", path);
  try {
    Program program;
    Reader(program, text).read();
    return program;
  } catch (const Error& error) {
    throw failed_error("{}: {}", path, error.what());
  }
}

}  // namespace ulpscope::ptx
