#include "tests/gpu/gpu_support.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

constexpr size_t kWordsBytes = 64 * 1024;

std::string& Library() {
  static std::string& library = *new std::string(CudaDriver::kLibrary);
  return library;
}

std::string Pci(int index) {
  const CudaDriver& driver = *TestDriver();
  cuda::Device device = 0;
  for (; index > 0 && driver.device_get(&device, index) != cuda::kSuccess; --index) {
  }
  char pci[32] = "";
  driver.device_get(&device, index);
  driver.device_get_pci_bus_id(pci, sizeof(pci), device);
  return pci;
}

struct Question {
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: free the arena and go
};

bool Read(int fd, void* bytes, size_t size) {
  return recv(fd, bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}
bool Write(int fd, const void* bytes, size_t size) {
  return send(fd, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

int Own(int fd, int index) {
  std::string why;
  if (TestDriver(&why) == nullptr) {
    std::fprintf(stderr, "arena owner: %s\n", why.c_str());
    return 1;
  }
  const auto device = TestDevice(index);
  auto arena = CudaArena::Create(device);
  if (!arena.ok()) {
    std::fprintf(stderr, "arena owner: %s\n", std::string(arena.status().message()).c_str());
    return 1;
  }
  if (!Write(fd, (*arena)->handle().data(), sizeof(ArenaHandle))) return 1;
  Question question;
  while (Read(fd, &question, sizeof(question)) && question.length != 0) {
    const uint64_t sum =
        Checksum(ReadGpu(*device, (*arena)->base() + question.offset, question.length));
    if (!Write(fd, &sum, sizeof(sum))) return 1;
  }
  return 0;
}

}  // namespace

const CudaDriver* TestDriver(std::string* why) {
  static const auto& driver =
      *new absl::StatusOr<const CudaDriver*>(CudaDriver::Load(Library().c_str()));
  if (driver.ok()) return *driver;
  if (why != nullptr) *why = std::string(driver.status().message());
  return nullptr;
}

std::shared_ptr<const CudaDevice> TestDevice(int index) {
  auto device = CudaDevice::Open(*TestDriver(), Pci(index));
  EXPECT_TRUE(device.ok()) << device.status();
  return *device;
}

GpuBuffer::GpuBuffer(std::shared_ptr<const CudaDevice> device, size_t size)
    : device_(std::move(device)), size_(size) {
  CudaScope scope(*device_);
  cuda::DevicePointer memory = 0;
  EXPECT_EQ(device_->driver().mem_alloc(&memory, size), cuda::kSuccess);
  data_ = reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
}

GpuBuffer::~GpuBuffer() {
  CudaScope scope(*device_);
  device_->driver().mem_free(reinterpret_cast<uintptr_t>(data_));
}

namespace {

void CopyAndWait(const CudaDevice& device, void* destination, const void* source, size_t size) {
  const CudaDriver& driver = device.driver();
  CudaScope scope(device);
  cuda::Stream stream = nullptr;
  ASSERT_EQ(driver.stream_create_with_priority(&stream, cuda::kStreamNonBlocking, 0),
            cuda::kSuccess);
  ASSERT_EQ(driver.memcpy_async(reinterpret_cast<uintptr_t>(destination),
                                reinterpret_cast<uintptr_t>(source), size, stream),
            cuda::kSuccess);
  ASSERT_EQ(driver.stream_synchronize(stream), cuda::kSuccess);
  driver.stream_destroy(stream);
}

}  // namespace

void GpuBuffer::Write(const std::vector<std::byte>& bytes) {
  ASSERT_LE(bytes.size(), size_);
  CopyAndWait(*device_, data_, bytes.data(), bytes.size());
}

std::vector<std::byte> ReadGpu(const CudaDevice& device, const std::byte* data, size_t size) {
  std::vector<std::byte> bytes(size);
  CopyAndWait(device, bytes.data(), data, size);
  return bytes;
}

std::vector<std::byte> RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

uint64_t Checksum(const std::vector<std::byte>& bytes) {
  uint64_t sum = 14695981039346656037u;  // FNV-1a
  for (std::byte byte : bytes) sum = (sum ^ static_cast<uint64_t>(byte)) * 1099511628211u;
  return sum;
}

SharedWords::SharedWords(std::shared_ptr<const CudaDevice> device, bool visible_to_device) {
  char path[] = "/dev/shm/railhop-gpu-test.XXXXXX";
  const int fd = mkstemp(path);
  EXPECT_GE(fd, 0);
  unlink(path);
  EXPECT_EQ(ftruncate(fd, kWordsBytes), 0);
  words_ =
      static_cast<uint64_t*>(mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  close(fd);
  if (!visible_to_device) return;
  auto memory = CudaHostMemory::Register(std::move(device), words_, kWordsBytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  if (memory.ok()) memory_ = *std::move(memory);
}

SharedWords::~SharedWords() {
  memory_.reset();
  munmap(words_, kWordsBytes);
}

ArenaOwner::ArenaOwner(int device, const std::string& visible_devices) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  const std::string driver = "--driver=" + Library();
  const std::string owner = "--own=" + std::to_string(ends[1]) + "," + std::to_string(device);
  // A new program: a child of a process that uses CUDA may not use it.
  pid_ = fork();
  if (pid_ == 0) {
    if (!visible_devices.empty()) setenv("CUDA_VISIBLE_DEVICES", visible_devices.c_str(), 1);
    execl("/proc/self/exe", "arena-owner", driver.c_str(), owner.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  fd_ = ends[0];
  EXPECT_TRUE(Read(fd_, handle_.data(), sizeof(handle_))) << "the arena's owner did not start";
}

ArenaOwner::~ArenaOwner() {
  Kill();
  close(fd_);
}

uint64_t ArenaOwner::ChecksumOf(uint64_t offset, uint64_t length) {
  const Question question{offset, length};
  uint64_t sum = 0;
  EXPECT_TRUE(Write(fd_, &question, sizeof(question)) && Read(fd_, &sum, sizeof(sum)));
  return sum;
}

void ArenaOwner::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool ArenaOwner::Leave() {
  const Question question;
  int status = -1;
  const bool told = Write(fd_, &question, sizeof(question));
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return told && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int GpuTestMain(int argc, char** argv) {
  int fd = -1, device = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--driver=", 0) == 0) Library() = argument.substr(9);
    if (argument.rfind("--own=", 0) == 0) std::sscanf(argv[i], "--own=%d,%d", &fd, &device);
  }
  return fd < 0 ? -1 : Own(fd, device);
}

bool HasOtherArguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--driver=")) continue;
    std::fprintf(stderr, "%s: unknown argument '%s'; it takes --driver=LIBRARY alone\n", argv[0],
                 argv[i]);
    return true;
  }
  return false;
}

int RunGpuTests(int argc, char** argv) {
  const int status = GpuTestMain(argc, argv);
  if (status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace railhop
