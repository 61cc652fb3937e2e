// Samples of any fields, from files of numbers that a test wrote: the same for training and for validation.
#include <deque>
#include <fstream>
#include <sstream>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

mortise_data object = {sizeof object};

class Fields {
 public:
  Fields() {
    const std::string folder(config::text("path"));
    std::ifstream list(folder + "/fields.txt");
    std::string line;
    list >> samples_;
    std::getline(list, line);
    while (std::getline(list, line)) add(folder, std::istringstream(line));
    object.n_fields = static_cast<uint32_t>(fields_.size());
    object.fields = fields_.data();
    object.open = thunk<&Fields::open>;
    object.describe = thunk<&Fields::describe>;
    object.vocabulary = thunk<&Fields::vocabulary>;
    object.get = thunk<&Fields::get>;
  }

  void open(const mortise_data_request*) {}
  void vocabulary(int64_t* out) { *out = 0; }
  void describe(mortise_str, mortise_split* split) {
    split->samples = samples_;
    split->about = MORTISE_STR("numbers of a test");
  }
  void get(mortise_str, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) const {
    for (uint32_t row = 0; row < n; ++row)
      for (uint32_t f = 0; f < bytes_.size(); ++f) {
        const size_t each = bytes_[f].size() / static_cast<size_t>(samples_);
        check(
            api.batch->put(api.host, rows, row, f, bytes_[f].data() + each * static_cast<size_t>(numbers[row]), each));
      }
  }

 private:
  void add(const std::string& folder, std::istringstream line) {
    std::string type;
    double fill = 0;
    line >> names_.emplace_back() >> type >> fill >> units_.emplace_back();
    if (units_.back() == "-") units_.back().clear();
    std::vector<int64_t>& sizes = sizes_.emplace_back();
    for (int64_t size = 0; line >> size;) sizes.push_back(size);
    std::ifstream file(folder + "/" + names_.back() + ".bin", std::ios::binary);
    bytes_.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (bytes_.back().empty()) throw Error(MORTISE_E_DATA, names_.back() + ".bin is empty");
    fields_.push_back({sizeof(mortise_field), static_cast<uint32_t>(type == "f32" ? MORTISE_F32 : MORTISE_I64),
                       str(names_.back()), str(units_.back()), fill, sizes.data(), static_cast<uint32_t>(sizes.size()),
                       0});
  }

  int64_t samples_ = 0;
  std::deque<std::string> names_, units_, bytes_;
  std::deque<std::vector<int64_t>> sizes_;
  std::vector<mortise_field> fields_;
};
}  // namespace

MORTISE_PLUGIN(Fields, mortise::provide("data", &object))
