#include "keel/parallel/group.h"

namespace keel::parallel {
namespace {

class SelfGroup : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(std::span<float>) override {}
  void all_reduce_sum(std::span<double>) override {}
  std::vector<std::vector<double>> all_gather(std::span<const double> values) override {
    return {{values.begin(), values.end()}};
  }
  void barrier() override {}
};

}  // namespace

std::shared_ptr<Group> Group::self() { return std::make_shared<SelfGroup>(); }

}  // namespace keel::parallel
