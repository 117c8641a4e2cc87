#include <stdint.h>
#include <string.h>

#include "bindings/c/transfer_engine_c.h"

int main(void) {
  static char here[4096] = "hello", there[4096], name[128];
  transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
  transfer_engine_t target = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
  if (registerLocalMemory(engine, here, sizeof here, "*", 1) != 0) return 1;
  if (registerLocalMemory(target, there, sizeof there, "*", 1) != 0) return 1;
  if (getLocalIpAndPort(target, name, sizeof name) != 0) return 1;
  const segment_id_t segment = openSegment(engine, name);
  struct transfer_request write = {OPCODE_WRITE, here, segment, (uintptr_t)there, sizeof here};
  struct transfer_status status = {STATUS_WAITING, 0};
  const batch_id_t batch = allocateBatchID(engine, 1);
  if (submitTransfer(engine, batch, &write, 1) != 0) return 1;
  while (status.status == STATUS_WAITING) getTransferStatus(engine, batch, 0, &status);
  freeBatchID(engine, batch);
  destroyTransferEngine(engine);
  destroyTransferEngine(target);
  return status.status == STATUS_COMPLETED && strcmp(there, "hello") == 0 ? 0 : 1;
}
