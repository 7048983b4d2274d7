// The sink that writes a trace: rows are encoded where they are added, and handed over step by step to the thread that writes them.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/encode.h"
#include "ulpscope/trace/file_writer.h"
#include "ulpscope/trace/new_file.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

namespace {

using trace_detail::ClosedSize;
using trace_detail::Encoder;
using trace_detail::RowCounts;
using trace_detail::TraceBuffer;
using trace_detail::TraceFileWriter;
using Clock = std::chrono::steady_clock;

// The writer wakes up before the next flush is due when this much is waiting: about a chunk of tensor rows.
constexpr size_t kWakeBytes = 512 << 10;
// Of rows in memory: so much is committed before a flush is due, so that a full disk costs no more.
constexpr size_t kCommitBytes = 2 << 20;
// What a step adds beside the rows that its recorder foretells, about: its row, and a few events with their texts.
constexpr uint64_t kStepEvents = 4, kStepTextBytes = 400;
constexpr uint64_t kHistogramBytes = 96;  // a large one

// Signal handlers of the program run on its own threads. Above all, a write beyond RLIMIT_FSIZE (SIGXFSZ) is to fail like any
// other, and not to end the process.
void block_signals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class TraceWriter final : public TraceSink {
 public:
  TraceWriter(std::string path, const RunInfo& run, const TraceOptions& options)
      : path_(std::move(path)), options_(options), interval_(std::max(options.flush_interval, std::chrono::milliseconds(1))) {
    encoder_.add(run, current_);
    std::promise<void> created;
    std::future<void> result = created.get_future();
    thread_ = std::thread([this, &created] { write(created); });
    try {
      result.get();
    } catch (...) {
      thread_.join();
      throw;
    }
    current_.clear();
  }

  ~TraceWriter() override { close(); }

  uint32_t add_op(const OpInfo& op) override {
    add(op);
    return ops_++;
  }
  uint32_t add_tensor(const TensorInfo& tensor) override {
    add(tensor);
    return tensors_++;
  }
  void add_edge(const GraphEdge& edge) override { add(edge); }
  void add_setting(const SettingInfo& setting) override { add(setting); }
  void add_source(const SourceInfo& source) override { add(source); }
  void add_product(const ProductInfo& product) override { add(product); }
  void add_row(const TensorRow& row) override {
    add(row);
    if (row.known == StatisticsLevel::values)
      with_magnitudes_ = handed_over_[static_cast<size_t>(TableId::stats)] + current_[TableId::stats].rows();
  }
  void add_batch(const BatchRow& row) override { add(row); }
  void add_parameter(const ParameterRow& row) override { add(row); }
  void add_fingerprint(const FingerprintRow& row) override { add(row); }
  void add_event(const EventRow& row) override { add(row); }
  void add_capture(const CaptureRow& row) override { add(row); }
  void add_sample(const SampleRow& row) override { add(row); }
  void add_measure(const MeasureRow& row) override { add(row); }
  void add_sum(const SumRow& row) override { add(row); }
  void add_bits(const BitsRow& row) override { add(row); }

  void end_step(const StepRow& row) override {
    add(row);
    hand_over();
  }

  SinkStatus status() const override {
    std::lock_guard lock(mutex_);
    SinkStatus status = status_;
    status.failed = failed_;
    status.queue_fill =
        std::min(1.0, static_cast<double>(queued()) / static_cast<double>(std::max<size_t>(1, options_.queue_bytes)));
    return status;
  }

  uint64_t closed_bytes(const MoreRows& more) const override {
    RowCounts rows = handed_over_;
    for (size_t i = 0; i < kTables; ++i) rows[i] += current_[static_cast<TableId>(i)].rows();
    const auto add = [&](TableId table, uint64_t count) { rows[static_cast<size_t>(table)] += count; };
    add(TableId::batches, more.batches);
    add(TableId::stats, more.tensors);
    add(TableId::histograms, more.histograms * kHistogramBytes);
    add(TableId::parameters, more.parameters);
    add(TableId::fingerprints, more.fingerprints);
    add(TableId::samples, more.samples);
    add(TableId::measures, more.measures);
    add(TableId::sums, more.sums);
    add(TableId::bits, more.bits);
    add(TableId::steps, 1);
    add(TableId::events, kStepEvents);
    add(TableId::strings, kStepEvents);
    add(TableId::string_bytes, kStepTextBytes);
    std::lock_guard lock(mutex_);
    return measured_.with(rows, more.histograms > 0 ? rows[static_cast<size_t>(TableId::stats)] : with_magnitudes_);
  }

  bool flush() override {
    std::unique_lock lock(mutex_);
    if (closed_) return !failed_;
    const uint64_t wanted = ++flushes_wanted_;
    wake_.notify_one();
    progress_.wait(lock, [&] { return flushes_done_ >= wanted || failed_; });
    return !failed_;
  }

  bool close() override {
    if (thread_.joinable()) {
      // Of a step that was begun and not ended, only what happened is kept.
      drop_unended_rows();
      hand_over();
      {
        std::lock_guard lock(mutex_);
        closing_ = true;
        wake_.notify_one();
      }
      thread_.join();
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    return !failed_;
  }

 private:
  template <typename Row>
  void add(const Row& row) {
    if (failed_ || closed_) return;
    try {
      encoder_.add(row, current_);
    } catch (const std::bad_alloc&) {
      fail("out of memory");
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  void drop_unended_rows() {
    for (const TableId id : {TableId::batches, TableId::stats, TableId::histograms, TableId::parameters, TableId::fingerprints,
                             TableId::captures, TableId::samples, TableId::measures, TableId::sums, TableId::bits}) {
      current_[id].clear();
    }
  }

  // Gives `current_` to the writer; waits while too much is waiting there.
  void hand_over() {
    if (failed_) return current_.clear();
    std::unique_lock lock(mutex_);
    const size_t bytes = current_.bytes();
    const auto fits = [&] { return queued() == 0 || queued() + bytes <= options_.queue_bytes || failed_; };
    if (!fits()) {
      room_wanted_ = true;
      wake_.notify_one();
      progress_.wait(lock, fits);
    }
    try {
      if (!failed_) ended_.append(current_);
      for (size_t i = 0; i < kTables; ++i) handed_over_[i] += current_[static_cast<TableId>(i)].rows();
    } catch (const std::bad_alloc&) {
      set_failed("out of memory");
    }
    current_.clear();
    if (failed_ || ended_.bytes() >= wake_bytes()) wake_.notify_one();
  }

  // Under the lock.
  size_t queued() const { return ended_.bytes() + writing_bytes_; }
  size_t wake_bytes() const { return std::min(kWakeBytes, options_.queue_bytes / 2); }

  void fail(const std::string& reason) {
    std::lock_guard lock(mutex_);
    set_failed(reason);
    wake_.notify_one();
  }
  // Under the lock.
  void set_failed(const std::string& reason) {
    status_.failure = reason;
    failed_ = true;
    progress_.notify_all();
  }

  // The writer's thread.
  void write(std::promise<void>& created) {
    block_signals();
    std::unique_ptr<TraceFileWriter> file;
    try {
      file = create();
    } catch (...) {
      created.set_exception(std::current_exception());
      return;
    }
    seconds_before_rows_ = thread_seconds();
    created.set_value();
    std::string reason;
    try {
      write_until_closed(*file);
      file->close("");
      std::lock_guard lock(mutex_);
      status_.bytes = file->file_bytes();
      status_.tensor_rows = file->rows(TableId::stats);
      status_.writer_seconds = thread_seconds() - seconds_before_rows_;
      return;
    } catch (const Error& error) {
      reason = error.what();
    } catch (const std::exception& error) {
      reason = fmt::format("cannot write '{}': {}", path_, error.what());
    }
    reason = fmt::format("recording stopped after {}: {}", count_of(file->rows(TableId::steps), "step"), reason);
    file->stop(reason);
    {
      std::lock_guard lock(mutex_);
      status_.tensor_rows = file->rows(TableId::stats);
    }
    fail(reason);
  }

  std::unique_ptr<TraceFileWriter> create();
  void write_until_closed(TraceFileWriter& file);

  const std::string path_;
  const TraceOptions options_;
  const std::chrono::milliseconds interval_;
  double seconds_before_rows_ = 0;  // of the writer's thread, when the file had been created

  // Of the producer's thread: the step that is being recorded.
  Encoder encoder_;
  TraceBuffer current_;
  uint32_t ops_ = 0, tensors_ = 0;
  RowCounts handed_over_{};       // rows, those of the run's description included
  uint64_t with_magnitudes_ = 0;  // rows of stats up to the last that has them

  mutable std::mutex mutex_;
  std::condition_variable wake_, progress_;
  TraceBuffer ended_;  // steps that wait to be written
  SinkStatus status_;
  ClosedSize measured_;  // by the last flush
  uint64_t flushes_wanted_ = 0, flushes_done_ = 0;
  size_t writing_bytes_ = 0;  // taken from `ended_`, not yet written
  bool room_wanted_ = false, closing_ = false, closed_ = false;
  std::atomic<bool> failed_ = false;
  std::thread thread_;
};

std::unique_ptr<TraceFileWriter> TraceWriter::create() {
  trace_detail::NewFile target(path_, options_.overwrite);
  auto file = std::make_unique<TraceFileWriter>(target.temporary(), target.path(), TraceFileWriter::Mode::live);
  file->append(current_);
  file->commit();
  measured_ = file->closed_size();
  handed_over_ = measured_.rows;
  target.take_name();
  return file;
}

void TraceWriter::write_until_closed(TraceFileWriter& file) {
  TraceBuffer taken;
  uint64_t uncommitted_steps = 0, committed_steps = 0;
  size_t uncommitted_bytes = 0;
  auto due = Clock::now() + interval_;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait_until(lock, due, [&] {
      return failed_ || closing_ || room_wanted_ || flushes_wanted_ > flushes_done_ || ended_.bytes() >= wake_bytes();
    });
    if (failed_) throw failed_error("{}", status_.failure);
    const bool closing = closing_;
    const uint64_t flushes = flushes_wanted_;
    const bool flush = flushes > flushes_done_ || closing;
    std::swap(taken, ended_);
    writing_bytes_ = taken.bytes();
    room_wanted_ = false;
    lock.unlock();
    if (taken.bytes() > 0) {
      file.append(taken);
      uncommitted_steps += taken[TableId::steps].rows();
      uncommitted_bytes += taken.bytes();
      taken.clear();
    }
    const bool commit = uncommitted_bytes > 0 && (flush || uncommitted_bytes >= kCommitBytes || Clock::now() >= due);
    if (commit) {
      file.commit();
      uncommitted_bytes = 0;
      committed_steps += uncommitted_steps;
      uncommitted_steps = 0;
    }
    if (commit || Clock::now() >= due) due = Clock::now() + interval_;
    const uint64_t bytes = file.file_bytes(), rows = file.rows(TableId::stats);
    const double seconds = thread_seconds() - seconds_before_rows_;
    const std::optional<ClosedSize> measured = flushes > flushes_done_ ? std::optional(file.closed_size()) : std::nullopt;
    lock.lock();
    if (measured) measured_ = *measured;
    status_.committed_steps = committed_steps;
    status_.bytes = bytes;
    status_.tensor_rows = rows;
    status_.writer_seconds = seconds;
    flushes_done_ = flushes;
    writing_bytes_ = 0;
    progress_.notify_all();
    if (commit && options_.on_commit) {
      lock.unlock();
      options_.on_commit(committed_steps);
      lock.lock();
    }
    if (closing && ended_.bytes() == 0) return;
  }
}

}  // namespace

std::unique_ptr<TraceSink> create_trace(const std::string& path, const RunInfo& run, const TraceOptions& options) {
  return std::make_unique<TraceWriter>(path, run, options);
}

}  // namespace ulpscope
