// The update of parameters whose masters and states lie in the host's memory (Ren et al. 2021, arXiv:2101.06840), by
// pieces: while the host's processor updates one, gradients of the next are on their way down, and values of the one
// before on their way up. What is copied goes through pinned memory, of some pieces at a time; what stays is not.
// States in a store come and go likewise.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>
#include <vector>

#include "core/host/host.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/state_store.hpp"

namespace mortise {

class HostUpdate {
 public:
  HostUpdate(Host& host, StateStore* store) : host_(host), store_(store) {}

  using Update = std::function<void(const std::vector<mortise_slice>&, const mortise_ledger&)>;
  // Calls `update` once a piece, with gradients and a ledger of the host, and where it `writes_value` with memory for
  // values; not at all if the step is to be skipped. Waits for the device; whatever lies on this thread's queue
  // afterwards finds the new values.
  void run(const std::vector<mortise_slice>& slices, bool writes_value, const Ledger& ledger, const Update& update);

 private:
  struct Piece {
    std::vector<mortise_slice> slices;
    std::vector<at::Tensor> grads, values;  // pinned
    std::optional<c10::Event> arrived;      // the gradients
    std::vector<at::Tensor> stored, here;   // states that are in a store, and in memory
    std::vector<mortise_tensor*> handles;   // of the latter
  };
  std::vector<Piece> in_pieces(const std::vector<mortise_slice>& slices) const;
  at::Tensor pinned_like(const at::Tensor& t, at::ScalarType dtype) const;
  void bring_down(Piece& piece, bool writes_value) const;
  void bring_up(Piece& piece, bool writes_value) const;
  void fetch_states(Piece& piece) const;
  void take_states(Piece& piece) const;

  Host& host_;
  StateStore* store_;                     // NULL: there is none
  std::optional<c10::Stream> down_, up_;  // none where the run's device is the host's processor
};

}  // namespace mortise
