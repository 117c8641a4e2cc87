/* The C interface as a C program uses it: two processes, an engine in each. The parent moves bytes
 * into the child's memory and out of it, and looks at every code; the child judges what arrived. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/transfer_engine_c.h"

enum { kBytes = 1 << 20, kPatienceS = 200 };

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

struct Hello {
  char name[128];
  uint64_t address;
};

static transfer_engine_t make_engine(void) {
  transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
  CHECK(engine != NULL);
  CHECK(discoverTopology(engine) == 0);
  CHECK(installTransport(engine, "tcp", NULL) != NULL);
  CHECK(installTransport(engine, "no such transport", NULL) == NULL);
  CHECK(uninstallTransport(engine, "tcp") == 0);
  return engine;
}

/* --- The child */

/* Memory that the parent writes to: ThreadSanitizer does not see the order between processes. */
__attribute__((no_sanitize_thread)) static int landed(const unsigned char* memory) {
  for (int i = 0; i < kBytes / 2; ++i) {
    if (memory[i] != (unsigned char)(i * 7)) return 0;
  }
  for (int i = kBytes / 2; i < kBytes; ++i) {
    if (memory[i] != 0) return 0;
  }
  return 1;
}

static int serve(int from_parent, int to_parent) {
  transfer_engine_t engine = make_engine();
  unsigned char* memory = calloc(1, kBytes);
  CHECK(registerLocalMemory(engine, memory, kBytes, "cpu:0", 1) == 0);
  struct Hello hello = {.address = (uint64_t)(uintptr_t)memory};
  CHECK(getLocalIpAndPort(engine, hello.name, sizeof hello.name) == 0);
  CHECK(write(to_parent, &hello, sizeof hello) == sizeof hello);
  char byte = 0;
  CHECK(read(from_parent, &byte, 1) == 1); /* the parent has written all */
  CHECK(landed(memory));

  int size = -1;
  notify_msg_t* notes = getNotifsFromEngine(engine, &size);
  CHECK(size == 2);
  CHECK(strcmp(notes[0].name, "batch") == 0 && strcmp(notes[0].msg, "is there") == 0);
  CHECK(strcmp(notes[1].name, "alone") == 0 && strcmp(notes[1].msg, "") == 0);
  CHECK(freeNotifsMsgBuf(notes, size) == 0);
  CHECK(getNotifsFromEngine(engine, &size) == NULL && size == 0);
  destroyTransferEngine(engine);
  free(memory);
  return 0;
}

/* --- The parent */

static struct transfer_request make_request(int opcode, segment_id_t target, void* source,
                                            uint64_t offset, uint64_t length) {
  struct transfer_request request = {.opcode = opcode,
                                     .source = source,
                                     .target_id = target,
                                     .target_offset = offset,
                                     .length = length};
  return request;
}

static struct transfer_status end_of(transfer_engine_t engine, batch_id_t batch, size_t task) {
  struct transfer_status status = {.status = STATUS_WAITING};
  while (status.status == STATUS_WAITING || status.status == STATUS_PENDING) {
    CHECK(getTransferStatus(engine, batch, task, &status) == 0);
  }
  return status;
}

static void check_registration(transfer_engine_t engine) {
  char* memory = calloc(1, 4096);
  CHECK(registerLocalMemory(engine, memory, 1024, "*", 1) == 0);
  CHECK(registerLocalMemory(engine, memory, 1024, "*", 1) == -7);
  CHECK(registerLocalMemory(engine, memory + 1023, 2, "*", 1) == -7);
  CHECK(registerLocalMemory(engine, memory + 1024, 0, "*", 1) == -1);
  CHECK(registerLocalMemory(engine, memory + 1024, 1024, "*", 0) == 0);
  CHECK(unregisterLocalMemory(engine, memory) == 0);
  CHECK(unregisterLocalMemory(engine, memory) == -3);
  CHECK(unregisterLocalMemory(engine, memory + 1024) == 0);
  buffer_entry_t entries[2] = {{memory, 1025}, {memory + 1024, 10}};
  void* addresses[2] = {memory, memory + 1024};
  CHECK(registerLocalMemoryBatch(engine, entries, 2, "*") == -7);
  entries[0].length = 1024;
  CHECK(registerLocalMemoryBatch(engine, entries, 2, "*") == 0);
  CHECK(unregisterLocalMemoryBatch(engine, addresses, 2) == 0);
  CHECK(unregisterLocalMemoryBatch(engine, addresses, 2) == -3);
  free(memory);
}

static void check_batches(transfer_engine_t engine, segment_id_t target, unsigned char* memory,
                          uint64_t address) {
  const uint64_t quarter = kBytes / 4;
  const batch_id_t batch = allocateBatchID(engine, 3);
  CHECK(batch != INVALID_BATCH);
  struct transfer_status status;
  CHECK(getTransferStatus(engine, batch, 0, &status) == 1);
  struct transfer_request two[2] = {
      make_request(OPCODE_WRITE, target, memory, address, quarter),
      make_request(OPCODE_WRITE, target, memory + quarter, address + quarter, quarter)};
  notify_msg_t note = {"batch", "is there"};
  CHECK(submitTransferWithNotify(engine, batch, two, 2, note) == 0);
  CHECK(submitTransfer(engine, batch, two, 2) == 2); /* there is room for one more */
  CHECK(freeBatchID(engine, batch) == 4);            /* nobody has seen its end */
  struct transfer_request bad = make_request(OPCODE_WRITE, target, memory, 4096, 64);
  struct transfer_request unknown = make_request(OPCODE_WRITE, 77, memory, address, 64);
  CHECK(submitTransfer(engine, batch, &unknown, 1) == 1);
  for (size_t task = 0; task < 2; ++task) {
    status = end_of(engine, batch, task);
    CHECK(status.status == STATUS_COMPLETED && status.transferred_bytes == quarter);
  }
  CHECK(submitTransfer(engine, batch, &bad, 1) == 0);
  CHECK(freeBatchID(engine, batch) == 4);
  CHECK(end_of(engine, batch, 2).status == STATUS_FAILED);
  CHECK(end_of(engine, batch, 0).status == STATUS_COMPLETED);
  CHECK(getTransferStatus(engine, batch, 3, &status) == 1);
  CHECK(freeBatchID(engine, batch) == 0);
  CHECK(freeBatchID(engine, batch) == 1);
  CHECK(submitTransfer(engine, batch, two, 1) == 1);
}

static void check_read(transfer_engine_t engine, segment_id_t target, unsigned char* memory,
                       uint64_t address) {
  unsigned char* const back = memory + kBytes / 2;
  const batch_id_t batch = allocateBatchID(engine, 1);
  struct transfer_request read = make_request(OPCODE_READ, target, back, address, kBytes / 2);
  CHECK(submitTransfer(engine, batch, &read, 1) == 0);
  CHECK(end_of(engine, batch, 0).status == STATUS_COMPLETED);
  CHECK(freeBatchID(engine, batch) == 0);
  CHECK(memcmp(memory, back, kBytes / 2) == 0);
}

/* What the callback was told; it frees its batch. */
struct told {
  transfer_engine_t engine;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int calls;
  int status;
  int freed;
};

static void on_end(batch_id_t batch, int status, void* context) {
  struct told* told = context;
  const int freed = freeBatchID(told->engine, batch);
  pthread_mutex_lock(&told->mutex);
  ++told->calls;
  told->status = status;
  told->freed = freed;
  pthread_cond_signal(&told->changed);
  pthread_mutex_unlock(&told->mutex);
}

static void check_callback(transfer_engine_t engine, segment_id_t target, unsigned char* memory,
                           uint64_t address) {
  struct told told = {
      .engine = engine, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  const batch_id_t batch = allocateBatchID(engine, 1);
  CHECK(setBatchCallback(engine, batch, NULL, NULL) == 1);
  CHECK(setBatchCallback(engine, batch, on_end, &told) == 0);
  struct transfer_request write = make_request(OPCODE_WRITE, target, memory, address, 4096);
  CHECK(submitTransfer(engine, batch, &write, 1) == 0);
  pthread_mutex_lock(&told.mutex);
  while (told.calls == 0) pthread_cond_wait(&told.changed, &told.mutex);
  pthread_mutex_unlock(&told.mutex);
  CHECK(told.status == STATUS_COMPLETED && told.freed == 0);
  CHECK(setBatchCallback(engine, batch, on_end, &told) == 1); /* it is gone */
}

static void check_scatter(transfer_engine_t engine, const char* name, unsigned char* memory,
                          uint64_t address) {
  unsigned char* const back = memory + kBytes / 2;
  /* Apart by the pattern's period, so that the target's bytes stay what they are. */
  const size_t local[3] = {0, 356, 50};
  const size_t remote[3] = {512, 100, 1000};
  const size_t lengths[3] = {10, 20, 0};
  scatter_range_t range = {.opcode = OPCODE_WRITE,
                           .remote_segment = name,
                           .remote_base_offset = address,
                           .remote_size = 1000,
                           .local_buffer = memory,
                           .local_capacity = 376,
                           .fragment_count = 3,
                           .local_offsets = local,
                           .remote_offsets = remote,
                           .lengths = lengths};
  CHECK(transferScatter(engine, &range, 1) == 0);
  range.opcode = OPCODE_READ;
  range.local_buffer = back;
  const batch_id_t batch = allocateBatchID(engine, 3);
  CHECK(submitScatter(engine, batch, &range, 1) == 0);
  for (size_t task = 0; task < 3; ++task) {
    CHECK(end_of(engine, batch, task).status == STATUS_COMPLETED);
  }
  CHECK(freeBatchID(engine, batch) == 0);
  CHECK(memcmp(memory, back, 10) == 0 && memcmp(memory + 356, back + 356, 20) == 0);
  range.local_capacity = 375; /* a byte less than the fragments need */
  CHECK(transferScatter(engine, &range, 1) == 1);
  range.local_capacity = 376;
  range.opcode = 9;
  CHECK(transferScatter(engine, &range, 1) == 1);
  range.opcode = OPCODE_READ;
  range.remote_segment = "127.0.0.1:1";
  CHECK(transferScatter(engine, &range, 1) != 0);
}

static void check_loads(transfer_engine_t engine) {
  size_t count = 0;
  CHECK(getNicLoadStats(engine, NULL, &count) == 0);
  CHECK(count == 1);
  nic_load_stat_t stats[2];
  count = 2;
  CHECK(getNicLoadStats(engine, stats, &count) == 0);
  CHECK(count == 1 && strcmp(stats[0].device_name, "tcp0") == 0);
  CHECK(stats[0].inflight_bytes == 0); /* all batches have ended */
}

/* NULL where something is needed is an error like any other, not the end of the process. */
static void check_null(void) {
  enum { kInvalid = 1 };
  transfer_engine_t engine = make_engine();
  char text[128];
  int size = 0;
  size_t count = 0;
  struct transfer_status status;
  const notify_msg_t note = {NULL, NULL};
  const batch_id_t batch = allocateBatchID(engine, 1);
  scatter_range_t range = {.opcode = OPCODE_WRITE, .remote_segment = "x", .fragment_count = 1};
  destroyTransferEngine(NULL);
  CHECK(getLocalIpAndPort(NULL, text, sizeof text) == kInvalid);
  CHECK(getLocalIpAndPort(engine, NULL, sizeof text) == kInvalid);
  CHECK(openSegment(NULL, "127.0.0.1:1") == -1 && openSegmentNoCache(NULL, "x") == -1);
  CHECK(openSegment(engine, NULL) == -1);
  CHECK(syncSegmentCache(NULL) == kInvalid);
  CHECK(registerLocalMemory(NULL, text, 8, NULL, 1) == -kInvalid);
  CHECK(unregisterLocalMemory(NULL, text) == -kInvalid);
  CHECK(registerLocalMemoryBatch(NULL, NULL, 0, NULL) == -kInvalid);
  CHECK(registerLocalMemoryBatch(engine, NULL, 1, NULL) == -kInvalid);
  CHECK(unregisterLocalMemoryBatch(NULL, NULL, 0) == -kInvalid);
  CHECK(unregisterLocalMemoryBatch(engine, NULL, 1) == -kInvalid);
  CHECK(allocateBatchID(NULL, 1) == INVALID_BATCH);
  CHECK(submitTransfer(NULL, batch, NULL, 0) == kInvalid);
  CHECK(submitTransfer(engine, batch, NULL, 1) == kInvalid);
  CHECK(submitTransferWithNotify(NULL, batch, NULL, 1, note) == kInvalid);
  CHECK(submitTransferWithNotify(engine, batch, NULL, 1, note) == kInvalid);
  CHECK(submitScatter(NULL, batch, NULL, 0) == kInvalid);
  CHECK(submitScatter(engine, batch, NULL, 1) == kInvalid);
  CHECK(submitScatter(engine, batch, &range, 1) == kInvalid); /* without offsets */
  CHECK(transferScatter(NULL, NULL, 0) == kInvalid);
  CHECK(transferScatter(engine, NULL, 1) == kInvalid);
  CHECK(setBatchCallback(NULL, batch, NULL, NULL) == kInvalid);
  CHECK(setBatchCallback(engine, batch, NULL, NULL) == kInvalid);
  CHECK(getTransferStatus(NULL, batch, 0, &status) == kInvalid);
  CHECK(getTransferStatus(engine, batch, 0, NULL) == kInvalid);
  CHECK(freeBatchID(NULL, batch) == kInvalid);
  CHECK(getNotifsFromEngine(NULL, &size) == NULL && getNotifsFromEngine(engine, NULL) == NULL);
  CHECK(freeNotifsMsgBuf(NULL, 3) == 0);
  CHECK(genNotifyInEngine(NULL, 0, note) == kInvalid);
  CHECK(getNicLoadStats(NULL, NULL, &count) == kInvalid);
  CHECK(getNicLoadStats(engine, NULL, NULL) == kInvalid);
  CHECK(showLinks(NULL, text, sizeof text, 0) == 0);
  CHECK(showLinks(engine, NULL, sizeof text, 0) == 0);
  CHECK(showLinks(engine, NULL, 0, 0) == 0);
  CHECK(freeBatchID(engine, batch) == 0);
  destroyTransferEngine(engine);
}

/* What `call` says on standard error. */
static const char* said_of(int (*call)(transfer_engine_t, segment_id_t), transfer_engine_t engine,
                           segment_id_t target) {
  static char text[4096];
  FILE* file = tmpfile();
  const int saved = dup(2);
  CHECK(file != NULL && saved >= 0 && dup2(fileno(file), 2) == 2);
  const int code = call(engine, target);
  CHECK(dup2(saved, 2) == 2 && close(saved) == 0 && code == 1);
  rewind(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  return text;
}

static int submit_odd_opcode(transfer_engine_t engine, segment_id_t target) {
  struct transfer_request request = {.opcode = 7, .target_id = target};
  return submitTransfer(engine, INVALID_BATCH, &request, 1);
}

static int submit_negative_target(transfer_engine_t engine, segment_id_t target) {
  struct transfer_request request = {.opcode = OPCODE_READ, .target_id = -target};
  return submitTransfer(engine, INVALID_BATCH - 1, &request, 1);
}

static int ask_of_stale_batch(transfer_engine_t engine, segment_id_t target) {
  struct transfer_status status;
  return getTransferStatus(engine, 0x700000000 + (batch_id_t)target, 2, &status);
}

static int write_from_unregistered(transfer_engine_t engine, segment_id_t target) {
  struct transfer_request request = {
      .opcode = OPCODE_WRITE, .source = (void*)8, .target_id = target, .length = 16};
  struct transfer_status status = {.status = STATUS_WAITING};
  const batch_id_t batch = allocateBatchID(engine, 1);
  CHECK(submitTransfer(engine, batch, &request, 1) == 0);
  while (status.status == STATUS_WAITING) {
    CHECK(getTransferStatus(engine, batch, 0, &status) == 0);
  }
  CHECK(status.status == STATUS_FAILED);
  CHECK(freeBatchID(engine, batch) == 0);
  return 1;
}

static void check_messages(transfer_engine_t engine, segment_id_t target) {
  CHECK(strstr(said_of(submit_odd_opcode, engine, target),
               "submitTransfer: entry 0: opcode 7 is neither OPCODE_READ nor OPCODE_WRITE"));
  CHECK(strstr(said_of(submit_negative_target, engine, target), "is none that openSegment gave"));
  CHECK(strstr(said_of(ask_of_stale_batch, engine, target), "has no task 2"));
  CHECK(strstr(said_of(write_from_unregistered, engine, target),
               "WRITE of 16 bytes, local address 0x8"));
}

static void move_bytes(const struct Hello* hello) {
  transfer_engine_t engine = make_engine();
  check_registration(engine);
  unsigned char* memory = malloc(kBytes);
  for (int i = 0; i < kBytes / 2; ++i) memory[i] = (unsigned char)(i * 7);
  CHECK(registerLocalMemory(engine, memory, kBytes, "cpu:0", 1) == 0);

  CHECK(openSegment(engine, "127.0.0.1:1") == -1);
  const segment_id_t target = openSegment(engine, hello->name);
  CHECK(target > LOCAL_SEGMENT);
  CHECK(openSegment(engine, hello->name) == target);
  CHECK(openSegmentNoCache(engine, hello->name) == target);
  CHECK(syncSegmentCache(engine) == 0);
  char own[128];
  CHECK(getLocalIpAndPort(engine, own, sizeof own) == 0);
  CHECK(getLocalIpAndPort(engine, own, 3) != 0);
  CHECK(openSegment(engine, own) == LOCAL_SEGMENT);

  check_messages(engine, target); /* first: none of a kind was said before */
  check_batches(engine, target, memory, hello->address);
  check_read(engine, target, memory, hello->address);
  check_callback(engine, target, memory, hello->address);
  check_scatter(engine, hello->name, memory, hello->address);
  check_loads(engine);
  notify_msg_t note = {"alone", NULL};
  CHECK(genNotifyInEngine(engine, (uint64_t)target, note) == 0);
  CHECK(genNotifyInEngine(engine, 77, note) == 1);

  char links[256];
  CHECK(showLinks(engine, links, sizeof links, 1) == (int)strlen(links));
  CHECK(enableGracefulShutdown(engine) == 0);
  CHECK(warmupEfaSegment(engine, hello->name) == 0);
  CHECK(closeSegment(engine, target) == 0);
  CHECK(unregisterLocalMemory(engine, memory) == 0);
  CHECK(removeLocalSegment(engine, own) == 0);
  destroyTransferEngine(engine);
  free(memory);
}

int main(void) {
  alarm(kPatienceS);
  int to_child[2];
  int to_parent[2];
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  /* Before either process has a thread. */
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(to_child[1]);
    return serve(to_child[0], to_parent[1]);
  }
  close(to_parent[1]);
  CHECK(createTransferEngine("no such thing://", "127.0.0.1", "", 0, 0) == NULL);
  CHECK(createTransferEngine(NULL, NULL, NULL, 0, 0) == NULL);
  check_null();
  struct Hello hello;
  CHECK(read(to_parent[0], &hello, sizeof hello) == sizeof hello);
  move_bytes(&hello);
  CHECK(write(to_child[1], "", 1) == 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}
