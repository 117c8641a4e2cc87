/* The C interface of Mooncake's Transfer Engine (names, layouts, values and codes of its
 * transfer_engine_c.h), implemented by Railhop: C, Rust and Go callers relink with librailhop_c.
 *
 * Threads: any. Strings given may be freed after the call. Transfers and batches return 0 or a
 * positive code, registrations 0 or a negative one (transport/engine/engine_error.h). What an error
 * was about is in the log, once in a while for each kind of error: also why a task failed, as soon
 * as getTransferStatus tells that it did. NULL, for an engine or an array with something in it, is
 * such an error. */
#ifndef RAILHOP_BINDINGS_C_TRANSFER_ENGINE_C_H_
#define RAILHOP_BINDINGS_C_TRANSFER_ENGINE_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What follows is all that the library exports. */
#pragma GCC visibility push(default)

#define segment_handle_t int32_t
#define segment_id_t int32_t
#define batch_id_t uint64_t
#define LOCAL_SEGMENT (0)
#define INVALID_BATCH UINT64_MAX

#define OPCODE_READ (0)
#define OPCODE_WRITE (1)

#define STATUS_WAITING (0)
#define STATUS_PENDING (1)
#define STATUS_INVALID (2)
#define STATUS_CANCELED (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT (5)
#define STATUS_FAILED (6)

typedef void* transfer_engine_t;
typedef void* transport_t;

struct transfer_request {
  int opcode;
  void* source;
  segment_id_t target_id;
  uint64_t target_offset; /* address in the target's process */
  uint64_t length;
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
  int status;
  uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct notify_msg {
  char* name;
  char* msg;
};
typedef struct notify_msg notify_msg_t;

struct buffer_entry {
  void* addr;
  size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct nic_load_stat {
  char device_name[64];
  uint64_t inflight_bytes;
  double ewma_bandwidth_bps; /* bytes per second */
};
typedef struct nic_load_stat nic_load_stat_t;

/* Fragment i is lengths[i] bytes between local_buffer + local_offsets[i] and
 * remote_base_offset + remote_offsets[i]. Railhop's C form of Mooncake's ScatterTransferRange. */
struct scatter_range {
  int opcode;
  const char* remote_segment;
  uint64_t remote_base_offset; /* address in the target's process */
  uint64_t remote_size;
  void* local_buffer;
  uint64_t local_capacity;
  size_t fragment_count; /* of each of the lists */
  const size_t* local_offsets;
  const size_t* remote_offsets;
  const size_t* lengths;
};
typedef struct scatter_range scatter_range_t;

/* Told of a batch: how it has ended, or STATUS_TIMEOUT when it is late and goes on. */
typedef void (*batch_callback_t)(batch_id_t batch_id, int status, void* context);

/* `metadata_conn_string`: P2PHANDSHAKE, http://host:port/path, etcd://host:port[;host:port].
 * `ip_or_host_name`, `rpc_port` and `auto_discover` count for nothing. NULL on failure. */
transfer_engine_t createTransferEngine(const char* metadata_conn_string,
                                       const char* local_server_name, const char* ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover);
void destroyTransferEngine(transfer_engine_t engine);
int discoverTopology(transfer_engine_t engine);
/* "ip:port" of the handshake listener. */
int getLocalIpAndPort(transfer_engine_t engine, char* buf_out, size_t buf_len);

/* The transport is there from creation on: not NULL for one that the engine has. */
transport_t installTransport(transfer_engine_t engine, const char* proto, void** args);
int uninstallTransport(transfer_engine_t engine, const char* proto);

/* -1 on failure. */
segment_id_t openSegment(transfer_engine_t engine, const char* segment_name);
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char* segment_name);
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
int removeLocalSegment(transfer_engine_t engine, const char* segment_name);
int warmupEfaSegment(transfer_engine_t engine, const char* segment_name);
int syncSegmentCache(transfer_engine_t engine);

int registerLocalMemory(transfer_engine_t engine, void* addr, size_t length, const char* location,
                        int remote_accessible);
int unregisterLocalMemory(transfer_engine_t engine, void* addr);
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t* buffer_list,
                             size_t buffer_len, const char* location);
int unregisterLocalMemoryBatch(transfer_engine_t engine, void** addr_list, size_t addr_len);

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request* entries,
                   size_t count);
/* The notification leaves once the whole batch was seen completed by getTransferStatus. */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                             struct transfer_request* entries, size_t count,
                             notify_msg_t notify_msg);
/* The fragments are the tasks of the batch, range by range; all are taken, or none. */
int submitScatter(transfer_engine_t engine, batch_id_t batch_id, const scatter_range_t* ranges,
                  size_t count);
/* As submitScatter, in a batch of its own, and waits for its end. 0 once all is there. */
int transferScatter(transfer_engine_t engine, const scatter_range_t* ranges, size_t count);
/* Before the first submission of the batch: `callback` is called when all that was submitted has
 * ended, on a thread of the engine, one at a time. It may free the batch and submit others, and
 * must not destroy the engine. Once destroyTransferEngine has begun no callback starts. */
int setBatchCallback(transfer_engine_t engine, batch_id_t batch_id, batch_callback_t callback,
                     void* context);
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                      struct transfer_status* status);
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* An array that freeNotifsMsgBuf takes back; NULL with *size 0 when there is none. */
notify_msg_t* getNotifsFromEngine(transfer_engine_t engine, int* size);
int freeNotifsMsgBuf(notify_msg_t* msg, int size);
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

/* `*count`: in, the room at `stats`; out, how many NICs there are, of which as many as have room
 * are written. `stats` may be NULL if there is none. */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t* stats, size_t* count);

int enableGracefulShutdown(transfer_engine_t engine);
/* Bytes written, without the 0 at the end, 0 on an error: the links of the engine as text, or as
 * JSON. */
int showLinks(transfer_engine_t engine, char* buf_out, size_t buf_len, int json);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* RAILHOP_BINDINGS_C_TRANSFER_ENGINE_C_H_ */
