#include "keel/rollout/sample.h"

#include "keel/base/error.h"

namespace keel::rollout {

const char* to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kStop:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kAbort:
      return "abort";
  }
  KEEL_CHECK(false, "stop reason {}", static_cast<int>(reason));
}

}  // namespace keel::rollout
