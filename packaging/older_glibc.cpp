// Functions that the program has itself, so that it starts where glibc is older than that which its static libraries were made for.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

// Functions of libgcc under names that oneDNN asks for here: libgcc hides its own in the program. They add no frame, so that the
// one that an exception leaves is the caller's.
#define ULPSCOPE_EXPORT_AS(name, function) \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name ": jmp " #function "\n.size " #name ", . - " #name "\n");
ULPSCOPE_EXPORT_AS(_unwind_resume, _Unwind_Resume)
ULPSCOPE_EXPORT_AS(_popcount_di2, __popcountdi2)

namespace {

constexpr long kNanosecondsPerSecond = 1'000'000'000;

// What is looked for in the objects that are loaded: the one whose code an address is.
struct Search {
  uintptr_t address;
  dl_find_object* found;
};

int visit_object(dl_phdr_info* info, size_t, void* opaque) {
  auto& search = *static_cast<Search*>(opaque);
  bool is_here = false;
  void* frame_table = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && search.address - start < header.p_memsz) {
      is_here = true;
      search.found->dlfo_map_start = reinterpret_cast<void*>(start);
      search.found->dlfo_map_end = reinterpret_cast<void*>(start + header.p_memsz);
    } else if (header.p_type == PT_GNU_EH_FRAME) {
      frame_table = reinterpret_cast<void*>(start);
    }
  }
  if (!is_here || !frame_table) return 0;
  search.found->dlfo_eh_frame = frame_table;
  return 1;
}

timespec now(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return time;
}

}  // namespace

extern "C" {

// glibc 2.32: true while there is one thread, when reference counts need no atomic instructions. False is always right.
__attribute__((visibility("default"))) extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.35. libgcc asks it for the table of frames of the code that an exception passes, and reads nothing else of the answer.
int _dl_find_object(void* address, dl_find_object* found) noexcept {
  *found = {};
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(visit_object, &search) == 1 ? 0 : -1;
}

// glibc 2.36. std::random_device asks it.
uint32_t arc4random() noexcept {
  uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}

// glibc 2.30. std::condition_variable waits with it until a time of the steady clock. Where there is none, that is a time of the
// system's clock, as before there was one.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* deadline) {
  using Function = decltype(&pthread_cond_clockwait);
  static const auto glibcs = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  if (glibcs) return glibcs(condition, mutex, clock, deadline);
  const timespec here = now(clock);
  timespec there = now(CLOCK_REALTIME);
  there.tv_sec += deadline->tv_sec - here.tv_sec;
  there.tv_nsec += deadline->tv_nsec - here.tv_nsec;
  if (there.tv_nsec < 0) {
    there.tv_nsec += kNanosecondsPerSecond;
    --there.tv_sec;
  } else if (there.tv_nsec >= kNanosecondsPerSecond) {
    there.tv_nsec -= kNanosecondsPerSecond;
    ++there.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &there);
}

}  // extern "C"
