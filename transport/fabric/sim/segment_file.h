// How a simulated target makes itself known: one JSON file per segment in a directory that targets
// and NICs share.
//
// Control path only. A file is replaced atomically, never rewritten, so a reader sees one state. It
// names the process that made it: the file of a process that ended is recognised as stale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/sim/sim_mover.h"
#include "transport/ring/process_identity.h"
#include "transport/staging/shared_memory.h"

namespace railhop {

inline constexpr char kSimFabricKind[] = "sim";

// Memory of the target that others can map, at `address` in the target.
struct SharedRange {
  uint64_t address = 0;
  SharedMemoryId id;
  std::optional<DeviceHandle> device = {};  // memory of a GPU: of `id` only the size counts
};

struct SegmentRecord {
  std::string name;
  ProcessIdentity owner{};
  SharedMemoryId key_table;
  std::vector<SharedRange> memories;  // KeyTable::Entry::memory counts through these
  std::vector<RemoteBuffer> buffers;
};

std::string EncodeSegment(const SegmentRecord& record);
// InvalidArgument, with what is wrong, for text that no target of this version writes.
absl::StatusOr<SegmentRecord> DecodeSegment(const std::string& text);

// `<directory>/<name>.segment`, where bytes of the name that are not A-Z a-z 0-9 _ - or an inner
// dot stand as %XX. InvalidArgument: empty, or too long for a file name.
absl::StatusOr<std::string> SegmentPath(const std::string& directory, const std::string& name);

// The file of `name` whoever made it. NotFound: no file. InvalidArgument: malformed, or of another
// segment. `text`, if not null: as it stands in the file.
absl::StatusOr<SegmentRecord> ReadSegment(const std::string& directory, const std::string& name,
                                          std::string* text);

// What is published under `name`. NotFound: no file. InvalidArgument: malformed, or another kind.
// Unavailable: its owner has ended.
absl::StatusOr<TargetInfo> LoadSimTarget(const std::string& directory, const std::string& name);

}  // namespace railhop
