// What the recorder makes of fingerprints: rows where weights and states are written, and an event where one is not what was
// written. The producer is a few arrays and sums of their bits.
#include <gmock/gmock.h>

#include <bit>
#include <numeric>

#include "memory_sink.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A weight, its FP32 gradient's state, and ops on them.
class Producer {
 public:
  explicit Producer(RecorderOptions options = {.level = RecordLevel::health}) : recorder_(sink, std::move(options)) {
    weight = {1, 2, 3, 4};
    state = {0, 0, 0, 0};
  }

  void step(const std::function<void()>& ops) {
    recorder_.begin_step(next_step_++);
    ops();
    recorder_.end_step({});
  }
  // The weight and the state enter the run.
  void enter() {
    write({.id = 1, .name = "source", .outputs = {weight_output()}});
    write({.id = 2, .name = "source", .outputs = {state_output()}});
    weight_is_ = {1, 0};
    state_is_ = {2, 0};
  }
  void forward() { read("linear", 3, weight_is_, view_of(weight)); }
  void update() {
    write({.id = 4, .name = "update", .inputs = {weight_is_, state_is_}, .outputs = {weight_output(), state_output()}},
          {view_of(weight), view_of(state)}, [&] {
            for (float& w : weight) w *= 0.75f;
            for (float& s : state) s += 1;
          });
    weight_is_ = {4, 0};
    state_is_ = {4, 1};
  }
  void read(std::string_view name, uint64_t id, ValueKey value, const TensorView& view) {
    write({.id = id, .name = std::string(name), .inputs = {value}, .outputs = {float_output(Role::activation)}}, {view});
  }
  ValueKey weight_key() const { return weight_is_; }

  static TensorView view_of(std::vector<float>& values) {
    TensorView view;
    view.data = values.data();
    view.rank = 1;
    view.shape[0] = static_cast<int64_t>(values.size());
    view.strides[0] = 1;
    return view;
  }
  std::vector<EventRow> changes() const { return sink.events_of(EventKind::memory_changed); }
  Recorder& recorder() { return recorder_; }

  MemorySink sink;
  std::vector<float> weight, state;
  int sums = 0;  // of inputs that were asked for

 private:
  OutputDescription output_of(std::vector<float>& values, Role role, std::string_view name) {
    OutputDescription output = float_output(role, "layer.weight");
    output.view = view_of(values);
    output.name = name;
    return output;
  }
  OutputDescription weight_output() { return output_of(weight, Role::weight, ""); }
  OutputDescription state_output() { return output_of(state, Role::optimizer_state, "exp_avg"); }

  static uint64_t sum_of(const TensorView& view) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < view.shape[0]; ++i) sum += std::bit_cast<uint32_t>(view.as<float>()[i * view.strides[0]]);
    return sum;
  }
  void write(
      const FakeOp& op, const std::vector<TensorView>& views = {}, const std::function<void()>& compute = [] {}) {
    OpDescription description;
    description.name = op.name;
    description.id = op.id;
    description.inputs = op.inputs;
    description.input_views = views;
    description.outputs = op.outputs;
    const auto records = recorder_.before(description);
    const auto inputs = recorder_.input_fingerprints();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i]->wanted) continue;
      *inputs[i] = {true, true, sum_of(views[i])};
      ++sums;
    }
    compute();
    for (size_t slot = 0; slot < records.size(); ++slot) {
      fill(*records[slot], op);
      Fingerprint& written = records[slot]->fingerprint;
      if (written.wanted) written = {true, true, sum_of(op.outputs[slot].view)};
    }
    recorder_.after();
  }

  Recorder recorder_;
  uint64_t next_step_ = 0;
  ValueKey weight_is_, state_is_;
};

uint64_t bits_of(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0},
                         [](uint64_t sum, float value) { return sum + std::bit_cast<uint32_t>(value); });
}

TEST(MemoryWatch, WritesARowForEachWeightAndStateWritten) {
  Producer producer;
  std::vector<uint64_t> expected;
  producer.step([&] {
    producer.enter();
    expected = {bits_of(producer.weight), bits_of(producer.state)};
    producer.forward();
    producer.update();
    expected.insert(expected.end(), {bits_of(producer.weight), bits_of(producer.state)});
  });
  producer.step([&] {
    producer.forward();
    producer.update();
    expected.insert(expected.end(), {bits_of(producer.weight), bits_of(producer.state)});
  });
  const std::vector<FingerprintRow>& rows = producer.sink.fingerprints;
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].written, expected[i]) << i;
    EXPECT_EQ(rows[i].step, i < 4 ? 0u : 1u);
    const TensorInfo& tensor = producer.sink.tensors[rows[i].tensor];
    EXPECT_EQ(tensor.role, i % 2 == 0 ? Role::weight : Role::optimizer_state);
    EXPECT_EQ(producer.sink.ops[tensor.op].name, i < 2 ? "source" : "update");
  }
  EXPECT_THAT(producer.changes(), IsEmpty());
}

TEST(MemoryWatch, NamesAFlippedBitOnce) {
  Producer producer;
  const auto train = [&] {
    producer.step([&] {
      producer.forward();
      producer.update();
    });
  };
  producer.step([&] {
    producer.enter();
    producer.forward();
    producer.update();
  });
  train();
  producer.weight[2] = std::bit_cast<float>(std::bit_cast<uint32_t>(producer.weight[2]) ^ (1u << 23));
  train();
  train();
  ASSERT_EQ(producer.changes().size(), 1u);
  const EventRow change = producer.changes()[0];
  EXPECT_EQ(change.step, 2u);
  EXPECT_EQ(change.count, 1u);
  EXPECT_EQ(producer.sink.tensors[static_cast<size_t>(change.tensor)].parameter, "layer.weight");
  EXPECT_EQ(producer.sink.tensors[static_cast<size_t>(change.tensor)].role, Role::weight);
  // 3 * 0.75^2 = 1.6875 has the exponent field 127, of which bit 23 is set.
  EXPECT_EQ(change.text,
            "layer.weight changed between update in step 1, which wrote it, and linear in step 2, which read it: a flipped bit, "
            "memory that "
            "is shared, or a foreign write; the sum of its bit patterns fell by 2^23, as where bit 23 of one element is cleared");
}

TEST(MemoryWatch, KnowsAStateAndAForeignWrite) {
  Producer producer;
  producer.step([&] {
    producer.enter();
    producer.state[0] = 5;  // within the step that wrote it
    producer.forward();
    producer.update();
  });
  ASSERT_EQ(producer.changes().size(), 1u);
  EXPECT_THAT(
      producer.changes()[0].text,
      HasSubstr("exp_avg of layer.weight changed between source in step 0, which wrote it, and update in step 0, which read it: a "
                "flipped bit, memory that is shared, or a foreign write; the sum of its bit patterns was 0x0 and is 0x40a00000"));
  EXPECT_EQ(producer.changes()[0].count, 0u);
  producer.step([&] {
    producer.forward();
    producer.weight = {9, 9, 9, 9};  // after the step's check of it: what the update writes is believed
    producer.update();
  });
  producer.step([&] { producer.forward(); });
  EXPECT_EQ(producer.changes().size(), 1u);
  producer.weight[3] = 7;
  producer.step([&] { producer.forward(); });
  ASSERT_EQ(producer.changes().size(), 2u);
  EXPECT_EQ(producer.changes()[1].step, 3u);
  EXPECT_EQ(producer.changes()[1].count, 1u);
}

// A step that is skipped writes nothing: the weights are still those of an earlier one.
TEST(MemoryWatch, ChecksAValueOnceAStepUntilItIsWrittenAgain) {
  Producer producer;
  producer.step([&] {
    producer.enter();
    producer.forward();
    producer.forward();
  });
  EXPECT_EQ(producer.sums, 1);
  producer.step([&] { producer.forward(); });
  EXPECT_EQ(producer.sums, 2);
  producer.weight[0] = 8;
  producer.step([&] {
    producer.forward();
    producer.update();
    producer.forward();  // an evaluation, of what the update wrote
  });
  EXPECT_EQ(producer.sums, 5);
  ASSERT_EQ(producer.changes().size(), 1u);
  EXPECT_EQ(producer.changes()[0].count, 0u);
  EXPECT_EQ(producer.changes()[0].step, 2u);
}

// An earlier value of the same memory, a part of it, other memory of that name, a view: none of them is what was written, or all of
// it.
TEST(MemoryWatch, ChecksWholeTensorsWhereTheyWereWritten) {
  Producer producer;
  std::vector<float> copy;
  producer.step([&] {
    producer.enter();
    producer.update();
    TensorView view = Producer::view_of(producer.weight);
    producer.sums = 0;
    producer.read("old", 10, {1, 0}, view);
    producer.read("other output", 11, {4, 3}, view);
    view.shape[0] = 2;
    producer.read("half", 12, producer.weight_key(), view);
    view.strides[0] = 2;
    producer.read("every other", 13, producer.weight_key(), view);
    copy = producer.weight;
    producer.read("copy", 14, producer.weight_key(), Producer::view_of(copy));
    EXPECT_EQ(producer.sums, 0);
    producer.read("all", 15, producer.weight_key(), Producer::view_of(producer.weight));
    EXPECT_EQ(producer.sums, 1);
  });
  EXPECT_THAT(producer.changes(), IsEmpty());
}

TEST(MemoryWatch, IsAtEveryLevelButOffAndWhateverTheFilters) {
  for (const auto& [level, modules] :
       {std::pair(RecordLevel::off, std::vector<std::string>{}), std::pair(RecordLevel::health, std::vector<std::string>{}),
        std::pair(RecordLevel::full, std::vector<std::string>{}),
        std::pair(RecordLevel::stats, std::vector<std::string>{"others"})}) {
    Producer producer({.level = level, .every = 100, .modules = modules});
    producer.step([&] {
      producer.enter();
      producer.update();
    });
    producer.weight[1] = 0;
    producer.step([&] { producer.forward(); });
    EXPECT_EQ(producer.changes().size(), level == RecordLevel::off ? 0u : 1u) << name_of(level);
    EXPECT_EQ(producer.sink.fingerprints.size(), level == RecordLevel::off || !modules.empty() ? 0u : 4u) << name_of(level);
  }
}

TEST(MemoryWatch, SaysNothingOfWhatIsNotKnown) {
  MemorySink sink;
  Recorder recorder(sink, {.level = RecordLevel::health});
  std::vector<float> weight{1, 2};
  OutputDescription output = float_output(Role::weight, "w");
  output.view = Producer::view_of(weight);
  const auto step = [&](uint64_t number) {
    recorder.begin_step(number);
    OpDescription description;
    const ValueKey input{7, 0};
    const TensorView view = output.view;
    description.name = "update";
    description.id = 7;
    description.inputs = {&input, 1};
    description.input_views = {&view, 1};
    description.outputs = {&output, 1};
    recorder.before(description);  // and no one fills in anything
    recorder.end_step({});
  };
  step(0);
  step(1);
  EXPECT_THAT(sink.fingerprints, IsEmpty());
  EXPECT_THAT(sink.events_of(EventKind::memory_changed), IsEmpty());
}

TEST(MemoryWatch, MemoryThatAlwaysChangesIsToldSoManyTimes) {
  Producer producer;
  producer.step([&] { producer.enter(); });
  for (int i = 0; i < 1500; ++i) {
    producer.weight[0] += 1;
    producer.step([&] { producer.forward(); });
  }
  EXPECT_EQ(producer.changes().size(), 1001u);
  EXPECT_THAT(producer.changes().back().text, HasSubstr("no more changes are recorded"));
}

// ParameterRow's norms and sums have 24 significant bits: round to nearest even by frexp and nearbyint.
TEST(ParameterRows, HaveTheCountsOfTheUpdateWith24Bits) {
  const auto rounded = [](double value) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, 24)), exponent - 24);
  };
  const auto row_of = [](const UpdateCounts& update) {
    MemorySink sink;
    Recorder recorder(sink, {.level = RecordLevel::health});
    FakeOp op{.id = 1, .name = "update"};
    op.outputs = {float_output(Role::weight, "w"), float_output(Role::update, "w")};
    int output = 0;
    op.fill = [&](OutputRecord& record) {
      record.update_known = output++ % 2 == 1;
      record.update = update;
    };
    record_step(recorder, 3, {op});
    EXPECT_EQ(sink.parameters.size(), 1u);
    EXPECT_EQ(sink.tensors[sink.parameters.at(0).tensor].role, Role::weight);
    return sink.parameters.at(0);
  };
  for (const double size : {1.0, 0x1.000001p0, 0x1.000003p0, 0x1.fffffffffp0, 0x1.0000008p40, 1.0 / 3, 1e300, 1e-300, 3e200}) {
    const ParameterRow row = row_of({.nonzero = 5,
                                     .lost = 3,
                                     .lost_to_decay = 1,
                                     .learning_rate = 0.1,
                                     .weight_squares = size,
                                     .update_squares = 2 * size,
                                     .gradient_dot_update = -size,
                                     .decay_known = true,
                                     .decay_asked = 3 * size,
                                     .decay_applied = -7 * size});
    EXPECT_EQ(row.step, 3u);
    EXPECT_EQ(row.learning_rate, 0.1);
    EXPECT_EQ(row.weight_norm, rounded(std::sqrt(size)));
    EXPECT_EQ(row.update_norm, rounded(std::sqrt(2 * size)));
    EXPECT_EQ(row.gradient_dot_update, rounded(-size));
    EXPECT_TRUE(row.decay_known);
    EXPECT_EQ(row.decay_asked, rounded(3 * size));
    EXPECT_EQ(row.decay_applied, rounded(-7 * size));
    EXPECT_THAT((std::vector{row.nonzero, row.lost, row.lost_to_decay}), ElementsAre(5, 3, 1));
    for (const double value : {row.weight_norm, row.update_norm, row.gradient_dot_update, row.decay_asked, row.decay_applied})
      EXPECT_EQ(std::bit_cast<uint64_t>(value) & 0x1FFFFFFF, 0u) << value;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const ParameterRow row = row_of({.weight_squares = std::nan(""), .update_squares = infinity, .gradient_dot_update = -infinity});
  EXPECT_TRUE(std::isnan(row.weight_norm));
  EXPECT_EQ(row.update_norm, infinity);
  EXPECT_EQ(row.gradient_dot_update, -infinity);
  EXPECT_FALSE(row.decay_known);
}

}  // namespace
}  // namespace ulpscope
