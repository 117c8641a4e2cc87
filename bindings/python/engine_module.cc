// The Python module railhop.engine: Mooncake's mooncake.engine by names, arguments and return
// codes, on top of TransferEngine.
//
// Every call that can block releases the GIL. Codes: 0 or -1 for transfers, 0 or a negative error
// for registrations, batch ids that are never 0.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/python/python_engine.h"

namespace py = pybind11;

namespace railhop {
namespace {

using Addresses = std::vector<uintptr_t>;
using Lengths = std::vector<size_t>;
using Released = py::call_guard<py::gil_scoped_release>;

// With Mooncake's values: callers pass it around as a number.
enum class PythonOpcode { kRead = 0, kWrite = 1 };

Opcode ToOpcode(PythonOpcode opcode) {
  return opcode == PythonOpcode::kRead ? Opcode::kRead : Opcode::kWrite;
}

void DefineTypes(py::module_& module) {
  py::enum_<PythonOpcode>(module, "TransferOpcode", py::arithmetic(), "Direction of a transfer.")
      .value("Read", PythonOpcode::kRead, "from the peer into local memory")
      .value("Write", PythonOpcode::kWrite, "from local memory to the peer")
      .export_values();
  py::class_<Notification>(module, "TransferNotify", "A word from one engine to another.")
      .def(py::init<>())
      .def(py::init([](std::string name, std::string message) {
             return Notification{std::move(name), std::move(message)};
           }),
           py::arg("name"), py::arg("msg"))
      .def_readwrite("name", &Notification::name)
      .def_readwrite("msg", &Notification::message);
  py::class_<NicLoad>(module, "NicLoadStat", "What one NIC has to do.")
      .def_readonly("device_name", &NicLoad::name)
      .def_readonly("inflight_bytes", &NicLoad::inflight_bytes)
      .def_readonly("ewma_bandwidth_bps", &NicLoad::bytes_per_second, "Bytes per second.");
  py::class_<TransferEngine, std::shared_ptr<TransferEngine>>(module, "InnerTransferEngine",
                                                              "Opaque: what get_engine() gives.");
}

void DefineSetUp(py::class_<PythonEngine>& engine) {
  engine.def(py::init<>())
      .def("initialize", &PythonEngine::Initialize, Released(), py::arg("local_hostname"),
           py::arg("metadata_server"), py::arg("protocol"), py::arg("device_name"),
           "Starts the engine. 0, or -1: the log says why.")
      .def(
          "initialize_ext",
          [](PythonEngine& self, const std::string& host, const std::string& metadata,
             const std::optional<std::string>& protocol, const std::optional<std::string>& devices,
             const std::string& type) {
            const bool whole =
                metadata == "P2PHANDSHAKE" || metadata.find("://") != std::string::npos;
            return self.Initialize(host, whole ? metadata : type + "://" + metadata, protocol,
                                   devices);
          },
          Released(), py::arg("local_hostname"), py::arg("metadata_server"), py::arg("protocol"),
          py::arg("device_name"), py::arg("metadata_type"),
          "As initialize; metadata_type (\"http\", \"etcd\") goes in front of a metadata_server "
          "that has no such part.")
      .def("get_rpc_port", &PythonEngine::RpcPort,
           "Port of the handshake listener: peers open \"host:port\".")
      .def("get_local_topology", &PythonEngine::LocalTopology, py::arg("device_name") = py::none(),
           "NIC priority matrix of this host, as JSON.")
      .def("get_engine", &PythonEngine::engine, "A handle for other modules; None before set-up.")
      .def(
          "get_engine_ptr",
          [](const PythonEngine& self) { return reinterpret_cast<uintptr_t>(self.engine().get()); },
          "Address of the C++ object; 0 before set-up.");
}

void DefineMemory(py::class_<PythonEngine>& engine) {
  engine
      .def("register_memory", &PythonEngine::RegisterMemory, Released(), py::arg("buffer_addr"),
           py::arg("capacity"), py::arg("location") = "*", "0, or a negative error.")
      .def("unregister_memory", &PythonEngine::UnregisterMemory, Released(), py::arg("buffer_addr"),
           "0, or a negative error.")
      .def("batch_register_memory", &PythonEngine::BatchRegisterMemory, Released(),
           py::arg("buffer_addresses"), py::arg("capacities"), py::arg("location") = "*",
           "All of them, or none.")
      .def("batch_unregister_memory", &PythonEngine::BatchUnregisterMemory, Released(),
           py::arg("buffer_addresses"), "All that can be; 0, or the first error, negative.")
      .def("allocate_managed_buffer", &PythonEngine::AllocateManagedBuffer, Released(),
           py::arg("length"), "Address of registered memory; 0: none is to be had.")
      .def("free_managed_buffer", &PythonEngine::FreeManagedBuffer, Released(), py::arg("addr"),
           py::arg("length"), "With the length that it was allocated with. 0, or a negative error.")
      .def("write_bytes_to_buffer", &PythonEngine::WriteBytes, py::arg("dest_address"),
           py::arg("bytes"), py::arg("length"), "Copies into local memory. 0, or -1.")
      .def(
          "read_bytes_from_buffer",
          [](const PythonEngine&, uintptr_t address, size_t length) {
            // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has addresses as numbers.
            return py::bytes(reinterpret_cast<const char*>(address), length);
          },
          py::arg("source_address"), py::arg("length"), "A copy of local memory.")
      .def("get_first_buffer_address", &PythonEngine::FirstBufferAddress, Released(),
           py::arg("segment_name"), "0: the segment has none, or cannot be reached.");
}

// The transport hint of newer upstream versions chooses among transports; there is one here.
void DefineTransfers(py::class_<PythonEngine>& engine) {
  for (const auto& [suffix, opcode] :
       {std::pair{"_write", Opcode::kWrite}, {"_read", Opcode::kRead}}) {
    const auto name = [suffix = std::string(suffix)](const char* prefix) {
      return prefix + suffix;
    };
    engine
        .def(
            name("transfer_sync").c_str(),
            [opcode = opcode](PythonEngine& self, const std::string& target, uintptr_t buffer,
                              uintptr_t peer, size_t length, const std::string&) {
              return self.TransferSync(target, {buffer}, {peer}, {length}, opcode, nullptr);
            },
            Released(), py::arg("target_hostname"), py::arg("buffer"),
            py::arg("peer_buffer_address"), py::arg("length"), py::arg("transport_hint") = "",
            "0, or -1.")
        .def(
            name("batch_transfer_sync").c_str(),
            [opcode = opcode](PythonEngine& self, const std::string& target,
                              const Addresses& buffers, const Addresses& peers,
                              const Lengths& lengths, const std::string&) {
              return self.TransferSync(target, buffers, peers, lengths, opcode, nullptr);
            },
            Released(), py::arg("target_hostname"), py::arg("buffers"),
            py::arg("peer_buffer_addresses"), py::arg("lengths"), py::arg("transport_hint") = "",
            "0, or -1.")
        .def(
            name("batch_transfer_async").c_str(),
            [opcode = opcode](PythonEngine& self, const std::string& target,
                              const Addresses& buffers, const Addresses& peers,
                              const Lengths& lengths, const std::string&) {
              return self.TransferAsync(target, buffers, peers, lengths, opcode);
            },
            Released(), py::arg("target_hostname"), py::arg("buffers"),
            py::arg("peer_buffer_addresses"), py::arg("lengths"), py::arg("transport_hint") = "",
            "Batch id; 0: not submitted.");
  }
  engine
      .def(
          "transfer_sync",
          [](PythonEngine& self, const std::string& target, uintptr_t buffer, uintptr_t peer,
             size_t length, PythonOpcode opcode, const std::optional<Notification>& notify,
             const std::string&) {
            return self.TransferSync(target, {buffer}, {peer}, {length}, ToOpcode(opcode),
                                     notify ? &*notify : nullptr);
          },
          Released(), py::arg("target_hostname"), py::arg("buffer"), py::arg("peer_buffer_address"),
          py::arg("length"), py::arg("opcode"), py::arg("notify") = py::none(),
          py::arg("transport_hint") = "",
          "0, or -1. The notification is sent to the target once its bytes are there.")
      .def(
          "batch_transfer_sync",
          [](PythonEngine& self, const std::string& target, const Addresses& buffers,
             const Addresses& peers, const Lengths& lengths, PythonOpcode opcode,
             const std::optional<Notification>& notify, const std::string&) {
            return self.TransferSync(target, buffers, peers, lengths, ToOpcode(opcode),
                                     notify ? &*notify : nullptr);
          },
          Released(), py::arg("target_hostname"), py::arg("buffers"),
          py::arg("peer_buffer_addresses"), py::arg("lengths"), py::arg("opcode"),
          py::arg("notify") = py::none(), py::arg("transport_hint") = "",
          "0, or -1. The notification is sent to the target once all bytes are there.")
      .def(
          "batch_transfer_async",
          [](PythonEngine& self, const std::string& target, const Addresses& buffers,
             const Addresses& peers, const Lengths& lengths, PythonOpcode opcode,
             const std::string&) {
            return self.TransferAsync(target, buffers, peers, lengths, ToOpcode(opcode));
          },
          Released(), py::arg("target_hostname"), py::arg("buffers"),
          py::arg("peer_buffer_addresses"), py::arg("lengths"), py::arg("opcode"),
          py::arg("transport_hint") = "", "Batch id; 0: not submitted.")
      .def(
          "transfer_submit_write",
          [](PythonEngine& self, const std::string& target, uintptr_t buffer, uintptr_t peer,
             size_t length, const std::string&) {
            return self.TransferAsync(target, {buffer}, {peer}, {length}, Opcode::kWrite);
          },
          Released(), py::arg("target_hostname"), py::arg("buffer"), py::arg("peer_buffer_address"),
          py::arg("length"), py::arg("transport_hint") = "", "Batch id; 0: not submitted.")
      .def("transfer_check_status", &PythonEngine::CheckStatus, Released(), py::arg("batch_id"),
           "Does not block. 1: done, 0: under way, -1: failed (both end the id), -2: timed out.")
      .def("get_batch_transfer_status", &PythonEngine::WaitForBatches, Released(),
           py::arg("batch_ids"), "Waits for all of them and frees them. 0, or -1 if one failed.");
}

// Railhop's form of Mooncake's C++ scatter calls.
void DefineScatter(py::class_<PythonEngine>& engine) {
  const auto range = [](const std::string& target, PythonOpcode opcode, uintptr_t buffer,
                        size_t capacity, uintptr_t peer, size_t peer_size, const Lengths& offsets,
                        const Lengths& peer_offsets, const Lengths& lengths) {
    return ScatterRange{
        .opcode = ToOpcode(opcode),
        .segment = target,
        .remote_address = peer,
        .remote_size = peer_size,
        // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has addresses as numbers.
        .local = reinterpret_cast<void*>(buffer),
        .local_size = capacity,
        .local_offsets = offsets,
        .remote_offsets = peer_offsets,
        .lengths = lengths};
  };
  const auto call = [range](auto member) {
    return [range, member](PythonEngine& self, const std::string& target, PythonOpcode opcode,
                           uintptr_t buffer, size_t capacity, uintptr_t peer, size_t peer_size,
                           const Lengths& offsets, const Lengths& peer_offsets,
                           const Lengths& lengths) {
      return (self.*member)(
          range(target, opcode, buffer, capacity, peer, peer_size, offsets, peer_offsets, lengths));
    };
  };
  engine
      .def(
          "transfer_scatter", call(&PythonEngine::ScatterSync), Released(),
          py::arg("target_hostname"), py::arg("opcode"), py::arg("buffer"), py::arg("capacity"),
          py::arg("peer_buffer_address"), py::arg("peer_size"), py::arg("offsets"),
          py::arg("peer_offsets"), py::arg("lengths"),
          "Moves lengths[i] bytes between buffer + offsets[i] and peer_buffer_address + "
          "peer_offsets[i], for all i. 0, or -1: then nothing was moved if a fragment does not lie "
          "inside both buffers.")
      .def("submit_scatter", call(&PythonEngine::ScatterAsync), Released(),
           py::arg("target_hostname"), py::arg("opcode"), py::arg("buffer"), py::arg("capacity"),
           py::arg("peer_buffer_address"), py::arg("peer_size"), py::arg("offsets"),
           py::arg("peer_offsets"), py::arg("lengths"),
           "As transfer_scatter, without waiting. Batch id; 0: not submitted.");
}

void DefineWords(py::class_<PythonEngine>& engine) {
  engine
      .def("get_notifies", &PythonEngine::TakeNotifications, Released(),
           "The notifications that have arrived since the last call.")
      .def("get_nic_load_stats", &PythonEngine::NicLoads, Released(),
           "What each NIC of this engine has to do now.")
      .def("send_probe", &PythonEngine::Probe, Released(), py::arg("peer_server_name"),
           "0: the peer's engine answers; else an error.")
      .def(
          "warmup_efa_segment", [](const PythonEngine&, const std::string&) { return 0; },
          py::arg("segment_name"), "0: there is nothing to warm up.");
}

}  // namespace
}  // namespace railhop

PYBIND11_MODULE(engine, module) {
  module.doc() = "Transfer Engine for KV caches, with the interface of mooncake.engine.";
  for (const char* feature : {"SUPPORT_EFA", "SUPPORT_HIP", "SUPPORT_MNNVL", "SUPPORT_MUSA",
                              "SUPPORT_INTRA_NVLINK", "SUPPORT_CUDA"}) {
    module.attr(feature) = false;
  }
  railhop::DefineTypes(module);
  py::class_<railhop::PythonEngine> engine(module, "TransferEngine",
                                           "One engine: registered memory, peers, transfers.");
  engine.attr("TransferOpcode") = module.attr("TransferOpcode");
  railhop::DefineSetUp(engine);
  railhop::DefineMemory(engine);
  railhop::DefineTransfers(engine);
  railhop::DefineScatter(engine);
  railhop::DefineWords(engine);
}
