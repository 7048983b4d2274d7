// Keys, pointer, wheel, text and sizes that come at random, over traces of every kind and over what is none: nothing makes the
// window's content fall, and its memory stays bounded. The fast test sends some events, the slow one 10,000.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "synthetic_trace.h"
#include "tests/gui/open_run.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/gui/app.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/keys.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::gui {
namespace {

using analyzers_test::SyntheticTrace;

class Chance {
 public:
  explicit Chance(uint32_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  float between(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  std::string bytes(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += static_cast<char>(below(256));
    return text;
  }
  template <typename T>
  const T& of(const std::vector<T>& all) {
    return all[static_cast<size_t>(below(static_cast<int>(all.size())))];
  }
  std::mt19937& engine() { return random_; }

 private:
  std::mt19937 random_;
};

// What is recorded of a run: `tensors` of random kinds and magnitudes, and in each step a row of some of them.
struct RunKind {
  int tensors = 6;
  int steps = 40;
  bool is_nan = false;
  bool has_values = true;
  std::function<std::string(Chance&)> name = [](Chance& chance) { return "layer" + std::to_string(chance.below(100)); };
};

void add_steps(SyntheticTrace& trace, Chance& chance, const RunKind& kind, const std::vector<std::pair<uint32_t, DType>>& tensors,
               int steps) {
  for (int step = 0; step < steps; ++step) {
    for (const auto& [tensor, dtype] : tensors) {
      if (tensors.size() < 100 && chance.one_in(5)) continue;
      std::vector<double> values = analyzers_test::lognormal(chance.engine(), chance.between(-60, 40), chance.between(0.1F, 20), 8);
      if (chance.one_in(3)) values[0] = std::vector<double>{0, -0.0, INFINITY, -INFINITY, NAN, 1e-45, 3e38}[chance.below(7)];
      if (kind.is_nan) std::fill(values.begin(), values.end(), NAN);
      const double scale = std::ldexp(1.0, chance.below(30));
      trace.add(tensor, kind.has_values ? analyzers_test::make_row(values, dtype, scale)
                                        : analyzers_test::make_health_row(values, dtype, scale));
    }
    StepRow row = SyntheticTrace::default_step(kind.is_nan ? NAN : chance.between(-1, 10), std::ldexp(1.0, chance.below(30)));
    row.skipped = chance.one_in(4);
    if (row.skipped && !tensors.empty()) trace.add_event(EventKind::scale_backoff, tensors.front().first, 1, 512);
    trace.end_step(row);
  }
}

std::vector<std::pair<uint32_t, DType>> add_tensors(SyntheticTrace& trace, Chance& chance, const RunKind& kind) {
  static const std::vector<DType> kTypes{DType::f16, DType::bf16, DType::f32};
  static const std::vector<std::pair<Phase, Role>> kRoles{
      {Phase::forward, Role::activation}, {Phase::backward, Role::activation_gradient}, {Phase::backward, Role::weight_gradient}};
  std::vector<std::pair<uint32_t, DType>> tensors;
  for (int i = 0; i < kind.tensors; ++i) {
    const auto& [phase, role] = chance.of(kRoles);
    const DType dtype = chance.of(kTypes);
    tensors.emplace_back(trace.add_tensor(kind.name(chance), chance.one_in(2) ? "linear" : "softmax_backward", phase, role, dtype),
                         dtype);
  }
  return tensors;
}

void copy_run(const std::string& to, Chance& chance, const RunKind& kind) {
  SyntheticTrace trace;
  add_steps(trace, chance, kind, add_tensors(trace, chance, kind), kind.steps);
  trace.sink().close();
  std::filesystem::copy_file(trace.path(), to, std::filesystem::copy_options::overwrite_existing);
}

std::string any_name(Chance& chance) {
  static const std::vector<std::string> kNames{"",
                                               "%s%n%x%1000000d",
                                               "##hidden",
                                               "###same",
                                               "a\nb\tc\rd",
                                               "<script>alert(1)</script>",
                                               "'; rm \"$(x)\" `y`",
                                               "\xE2\x80\xAE desrever",
                                               "\xF0\x9F\x94\xA5",
                                               "\xEF\xBF\xBD\xCC\x81\xCC\x81",
                                               std::string("nul\0nul", 7),
                                               std::string(20000, 'x')};
  if (chance.one_in(2)) return chance.of(kNames);
  std::string name;  // of characters of two bytes, and of one
  for (int i = chance.below(40); i > 0; --i) {
    if (chance.one_in(2))
      name += {static_cast<char>(0xC2 + chance.below(30)), static_cast<char>(0x80 + chance.below(64))};
    else
      name += static_cast<char>(chance.below(128));
  }
  return name;
}

// A file, and what becomes of it while it is open.
struct Case {
  const char* name;
  std::function<void(const std::string& path, Chance& chance)> make;
  std::function<void(const std::string& path, Chance& chance)> change = {};
  bool changes_again = false;
};

// A run that goes on while it is shown, and ends in order, in the middle of a step or not at all.
class LiveRun {
 public:
  LiveRun(const std::string& path, Chance& chance) : tensors_(add_tensors(trace_, chance, {})) {
    trace_.sink().flush();
    std::filesystem::create_hard_link(trace_.path(), path);
  }
  void go_on(Chance& chance) {
    if (is_closed_) return;
    add_steps(trace_, chance, {.is_nan = chance.one_in(4)}, tensors_, chance.below(60));
    trace_.sink().flush();
    is_closed_ = chance.one_in(12);
    if (is_closed_) trace_.sink().close();
  }

 private:
  SyntheticTrace trace_;
  std::vector<std::pair<uint32_t, DType>> tensors_;
  bool is_closed_ = false;
};

void overwrite(const std::string& path, Chance& chance, uint64_t bytes_most) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t size = std::filesystem::file_size(path);
  file.seekp(static_cast<std::streamoff>(chance.engine()() % (size + 1)));
  const std::string bytes = chance.bytes(1 + chance.below(static_cast<int>(bytes_most)));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::vector<Case> cases(int many_tensors) {
  const auto run = [](const RunKind& kind) {
    return [kind](const std::string& path, Chance& chance) { copy_run(path, chance, kind); };
  };
  const auto live = std::make_shared<std::unique_ptr<LiveRun>>();
  return {
      {"an ordinary run", run({})},
      {"no steps", run({.steps = 0})},
      {"no tensors", run({.tensors = 0})},
      {"one step", run({.steps = 1})},
      {"all NaN", run({.is_nan = true})},
      {"without histograms", run({.has_values = false})},
      {"any names", run({.tensors = 30, .steps = 5, .name = any_name})},
      {"names that are no UTF-8", run({.steps = 5, .name = [](Chance& chance) { return chance.bytes(10); }})},
      {"many tensors", run({.tensors = many_tensors, .steps = 2})},
      {"many steps", run({.tensors = 2, .steps = 1500})},
      {"no file", [](const std::string&, Chance&) {}},
      {"an empty file", [](const std::string& path, Chance&) { write_file(path, ""); }},
      {"no HDF5", [](const std::string& path, Chance& chance) { write_file(path, chance.bytes(5000)); }},
      {"another schema",
       [](const std::string& path, Chance& chance) {
         hdf5::File file = hdf5::File::create(path, path);
         file.set_attribute("/", kSchemaAttribute, chance.one_in(2) ? uint64_t{1} : uint64_t{999999});
       }},
      {"cut",
       [](const std::string& path, Chance& chance) {
         copy_run(path, chance, {});
         std::filesystem::resize_file(path, chance.engine()() % std::filesystem::file_size(path));
       }},
      {"damaged",
       [](const std::string& path, Chance& chance) {
         copy_run(path, chance, {});
         for (int i = 0; i < 1 + chance.below(5); ++i) overwrite(path, chance, 16);
       }},
      {"truncated while it is open", run({}),
       [](const std::string& path, Chance& chance) {
         std::filesystem::resize_file(path, chance.engine()() % std::filesystem::file_size(path));
       }},
      {"damaged while it is open", run({}), [](const std::string& path, Chance& chance) { overwrite(path, chance, 50000); }},
      {"removed while it is open", run({}), [](const std::string& path, Chance&) { std::filesystem::remove(path); }},
      {"replaced while it is open", run({}),
       [](const std::string& path, Chance& chance) {
         copy_run(path + ".new", chance, {.tensors = 3, .steps = 7});
         std::filesystem::rename(path + ".new", path);
       }},
      {"written over while it is open", run({}),
       [](const std::string& path, Chance& chance) {
         copy_run(path + ".new", chance, {.tensors = 3, .steps = 7});
         write_file(path, read_file(path + ".new"));
       }},
      {"being written", [live](const std::string& path, Chance& chance) { *live = std::make_unique<LiveRun>(path, chance); },
       [live](const std::string&, Chance& chance) { (*live)->go_on(chance); }, true},
  };
}

double resident_megabytes() {
  std::ifstream status("/proc/self/statm");
  double pages = 0, resident = 0;
  status >> pages >> resident;
  return 1e-6 * resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// ImGui's own keys too, which move the focus, open boxes and edit text, as in a window.
void take_all_keys() {
  ImGuiIO& io = ImGui::GetIO();
  io.ConfigFlags |= ImGuiConfigFlags_NavEnableKeyboard;
#if IMGUI_VERSION_NUM < 18700
  static constexpr std::pair<ImGuiKey_, int> kKeys[] = {
      {ImGuiKey_Tab, 258},       {ImGuiKey_LeftArrow, 263}, {ImGuiKey_RightArrow, 262}, {ImGuiKey_UpArrow, 265},
      {ImGuiKey_DownArrow, 264}, {ImGuiKey_PageUp, 266},    {ImGuiKey_PageDown, 267},   {ImGuiKey_Home, 268},
      {ImGuiKey_End, 269},       {ImGuiKey_Delete, 261},    {ImGuiKey_Backspace, 259},  {ImGuiKey_Space, 32},
      {ImGuiKey_Enter, 257},     {ImGuiKey_Escape, 256},    {ImGuiKey_A, 'A'},          {ImGuiKey_C, 'C'},
      {ImGuiKey_V, 'V'},         {ImGuiKey_X, 'X'},         {ImGuiKey_Y, 'Y'},          {ImGuiKey_Z, 'Z'}};
  for (const auto& [key, number] : kKeys) io.KeyMap[key] = number;
#endif
}

int any_key(Chance& chance) {
#if IMGUI_VERSION_NUM >= 18700
  return ImGuiKey_NamedKey_BEGIN + chance.below(ImGuiKey_GamepadStart - ImGuiKey_NamedKey_BEGIN);
#else
  static const std::vector<int> kNumbers{258, 262, 263, 264, 265, 266, 267, 268, 269, 261, 259, 32,  257,
                                         256, 'W', 'A', 'S', 'D', 'F', 'P', 'Z', 'Y', 'C', 'V', 'X', '.',
                                         ',', '/', '1', '2', '3', '4', '5', '6', '7', '8', '9', '0'};
  return chance.of(kNumbers);
#endif
}

struct Sizes {
  int width = 1000, height = 700;
};

void send_event(Headless& host, App& app, Chance& chance, Sizes& size) {
  switch (chance.below(12)) {
    case 0:
    case 1:
      host.press(chance.one_in(2), chance.one_in(4) ? 1 : 0);
      break;
    case 2:
      host.wheel(chance.between(-5, 5));
      break;
    case 3:
    case 4:
    case 5:
      host.key(any_key(chance), chance.below(3) > 0, chance.one_in(5), chance.one_in(5));
      break;
    case 6:
      if (chance.one_in(3))
        host.type(chance.one_in(2) ? chance.bytes(3) : std::string(1, static_cast<char>(32 + chance.below(90))));
      break;
    case 7:
      if (!chance.one_in(5)) break;
      size = {200 + chance.below(chance.one_in(3) ? 1720 : 300), 150 + chance.below(chance.one_in(3) ? 930 : 200)};
      host.resize(size.width, size.height);
      break;
    case 8:
      if (chance.one_in(10)) app.state().is_light = !app.state().is_light;
      if (chance.one_in(4)) app.state().view = static_cast<View>(chance.below(kViews));
      break;
    default:
      // Where something is, or anywhere.
      if (const auto& places = app.names().all(); !places.empty() && chance.one_in(2)) {
        const Rectangle& place = std::next(places.begin(), chance.below(static_cast<int>(places.size())))->second;
        host.move_to({chance.between(place.from.x, place.to.x + 1), chance.between(place.from.y, place.to.y + 1)});
      } else {
        host.move_to(
            {chance.between(-50, static_cast<float>(size.width) + 50), chance.between(-50, static_cast<float>(size.height) + 50)});
      }
  }
}

// What is in memory once each view has been there: some hold more than others, and a few events need not have come to all.
double megabytes_with_all_views(Headless& host, App& app, ViewModel& model) {
  for (int view = 0; view < kViews; ++view) {
    app.state().view = static_cast<View>(view);
    host.run(app);
    model.wait();
    host.run(app);
  }
  return resident_megabytes();
}

void fuzz(int events, int many_tensors, uint32_t seed) {
  const std::vector<Case> all = cases(many_tensors);
  const int of_each = (events + static_cast<int>(all.size()) - 1) / static_cast<int>(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    Chance chance(seed + static_cast<uint32_t>(i));
    const TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    all[i].make(path, chance);
    std::vector<std::string> paths{path};
    if (chance.one_in(2)) {
      copy_run(folder.file("other.h5"), chance, {});
      paths.push_back(folder.file("other.h5"));
    }
    ViewModel model(paths, open_run, true);
    Headless host(1000, 700, chance.one_in(4) ? 2 : 1, true);
    take_all_keys();
    App app(model, host.textures(), {});
    Sizes size;
    [[maybe_unused]] double settled = 0;
    for (int event = 0; event < of_each; ++event) {
      if (all[i].change && (all[i].changes_again ? chance.one_in(8) : event == of_each / 3)) all[i].change(path, chance);
      send_event(host, app, chance, size);
      if (chance.one_in(8)) model.wait();
      if (chance.one_in(16))
        host.draw(app);
      else
        host.run(app);
      if (app.state().steps.last <= app.state().steps.first) FAIL() << "no steps are shown after event " << event;
      if (event == of_each / 2) settled = megabytes_with_all_views(host, app, model);
    }
    model.wait();
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_LE(resident_megabytes(), settled + 200) << "after so many events more";
#endif
  }
}

TEST(GuiFuzz, NothingMakesItFall) { fuzz(1000, 2000, 1); }
TEST(SlowGuiFuzz, NothingMakesItFall) { fuzz(10000, 100000, 1000); }

}  // namespace
}  // namespace ulpscope::gui
