// Segment descriptors: any bytes; what is accepted keeps the rules, and comes back from its own
// encoding.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transport/engine/segment_descriptor.h"

namespace {

using railhop::SegmentBuffer;
using railhop::SegmentDescriptor;
using railhop::SegmentDevice;

void Expect(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(data, data + size);
  const auto segment = SegmentDescriptor::Decode(text);
  if (!segment.ok()) {
    Expect(!segment.status().message().empty());
    Expect(segment.status().message().size() < 1000);
    return 0;
  }
  Expect(!segment->name.empty() && segment->tcp_proto_version >= 1);
  for (const SegmentDevice& device : segment->devices) {
    Expect(!device.name.empty() && !device.gid.empty());
  }
  for (const SegmentBuffer& buffer : segment->buffers) {
    Expect(!buffer.name.empty() && buffer.address != 0 && buffer.length != 0);
    Expect(buffer.address + buffer.length > buffer.address);
    Expect(buffer.rkeys.empty() || (buffer.rkeys.size() == segment->devices.size() &&
                                    buffer.lkeys.size() == segment->devices.size()));
  }
  const std::string encoded = segment->Encode();
  Expect(encoded.back() == '\n' && encoded.find('\n') == encoded.size() - 1);
  const auto again = SegmentDescriptor::Decode(encoded);
  Expect(again.ok() && again->Encode() == encoded);
  return 0;
}
