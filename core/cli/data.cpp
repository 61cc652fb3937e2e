// mortise data [RUN]: what the data of a manifest is. Samples are read, nothing is trained.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <numeric>

#include "core/abi/edge.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/declare/declared.hpp"
#include "core/host/batch.hpp"

namespace mortise::cli {
namespace {

constexpr int64_t kMostRead = 10'000;  // of the samples to train on, in the order of the first epoch

// What was read of them.
struct Seen {
  int64_t samples = 0;
  std::vector<std::vector<int64_t>> lengths;  // of each field that is a sequence, of each sample
  std::vector<int64_t> classes;               // how many samples are of each
  int64_t first = 0;                          // its number
  std::vector<int64_t> ids;                   // of the first field of the first sample, if they are whole numbers
  int64_t label = -1;
};

std::vector<int64_t> numbers_of(const std::vector<std::byte>& bytes) {
  std::vector<int64_t> all(bytes.size() / sizeof(int64_t));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), all.size() * sizeof(int64_t));
  return all;
}

// A whole number for the sample, and the data has names for it.
bool is_class(const Field& field, const Declared& d) {
  return !d.edge->declaration().classes.empty() && !field.is_sequence && field.sizes.empty() &&
         field.dtype == MORTISE_I64;
}

void look_at(const mortise_rows& rows, const Samples::Micro& micro, const Declared& d, Seen& seen) {
  for (size_t row = 0; row < rows.rows.size(); ++row)
    for (size_t f = 0; f < rows.fields.size(); ++f) {
      const Field& field = rows.fields[f];
      const bool is_first = seen.samples == 0 && row == 0;
      if (is_first) seen.first = micro.numbers()[0];
      if (field.is_sequence) seen.lengths[f].push_back(rows.length(row, f));
      if (field.dtype != MORTISE_I64) continue;
      if (is_first && f == 0 && field.is_sequence) seen.ids = numbers_of(rows.rows[row][f]);
      if (!is_class(field, d)) continue;
      const std::vector<int64_t> label = numbers_of(rows.rows[row][f]);
      if (label.empty() || label[0] < 0 || label[0] >= static_cast<int64_t>(seen.classes.size())) continue;
      ++seen.classes[static_cast<size_t>(label[0])];
      if (is_first) seen.label = label[0];
    }
  seen.samples += static_cast<int64_t>(rows.rows.size());
}

Seen look(Declared& d, const std::vector<Field>& fields) {
  Seen seen;
  seen.lengths.resize(fields.size());
  seen.classes.resize(d.edge->declaration().classes.size());
  const int64_t micros = d.samples->micros_per_epoch("train");
  for (int64_t i = 0; i < micros && seen.samples < kMostRead; ++i) {
    const Samples::Micro micro = d.samples->micro("train", i);
    mortise_rows rows(fields, micro.n);
    const std::vector<int64_t> epochs(micro.n, 0);
    d.data.call(&mortise_data::get, "get", str(micro.split), micro.numbers(), epochs.data(), micro.n, &rows);
    look_at(rows, micro, d, seen);
  }
  return seen;
}

std::string text_of_ids(const Declared& d, const std::vector<int64_t>& ids) {
  const auto& tokenizer = d.edge->services.tokenizer;
  if (!tokenizer) {
    std::vector<std::string> texts;
    for (const int64_t id : ids) texts.push_back(std::to_string(id));
    return "ids " + join(texts, " ");
  }
  size_t needed = 0;
  tokenizer.call(&mortise_tokenizer::decode, "decode", ids.data(), ids.size(), static_cast<char*>(nullptr), size_t{0},
                 &needed);
  std::string text(needed, '\0');
  tokenizer.call(&mortise_tokenizer::decode, "decode", ids.data(), ids.size(), text.data(), text.size(), &needed);
  return text;
}

struct LengthsOfField {
  int64_t median = 0, most_of = 0, longest = 0;  // `most_of`: 95 % are no longer
  double full = 0;                               // share that is as long as data.sequence_length
};

LengthsOfField summed_up(std::vector<int64_t> lengths, int64_t limit) {
  std::ranges::sort(lengths);
  const auto at = [&](double share) {
    return lengths[static_cast<size_t>(share * static_cast<double>(lengths.size() - 1))];
  };
  const auto full = limit > 0 ? std::ranges::count_if(lengths, [&](int64_t n) { return n >= limit; }) : 0;
  return {at(0.5), at(0.95), lengths.back(), static_cast<double>(full) / static_cast<double>(lengths.size())};
}

void print_classes(const Declared& d, const Seen& seen) {
  const std::vector<std::string>& names = d.edge->declaration().classes;
  if (std::accumulate(seen.classes.begin(), seen.classes.end(), int64_t{0}) == 0) return;
  constexpr size_t kMostShown = 12;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMostShown); ++i)
    shown.push_back(names[i] + " " + with_commas(seen.classes[i]));
  if (names.size() > kMostShown) shown.emplace_back("…");
  std::cout << fmt::format("classes  {}: {}\n", names.size(), escape_control(join(shown, " · ")));
}

void print_text(const Declared& d, const std::vector<Field>& fields, const Seen& seen) {
  std::cout << fmt::format("data     {} {}: {} to train, {} to validate\n", d.data.by->id(), d.samples->about("train"),
                           with_commas(d.samples->count("train")), with_commas(d.samples->count("validation")));
  if (seen.samples < d.samples->count("train"))
    std::cout << "read     " << with_commas(seen.samples) << " samples of those to train, for what follows\n";
  print_classes(d, seen);
  for (size_t f = 0; f < fields.size(); ++f) {
    if (seen.lengths[f].empty() || &*std::ranges::find(seen.lengths, seen.lengths[f]) != &seen.lengths[f])
      continue;  // as long as one before it
    const LengthsOfField l = summed_up(seen.lengths[f], d.sequence_length);
    std::cout << fmt::format("lengths  {}: median {}, 95 % up to {}, longest {}", fields[f].name, with_commas(l.median),
                             with_commas(l.most_of), with_commas(l.longest));
    if (l.full > 0)
      std::cout << fmt::format("; {:.0f} % fill all {} of data.sequence_length", 100 * l.full,
                               with_commas(d.sequence_length));
    std::cout << "\n";
  }
  if (seen.ids.empty()) return;
  std::cout << "sample   " << with_commas(seen.first) << ": " << escape_control(text_of_ids(d, seen.ids));
  if (seen.label >= 0)
    std::cout << "   class " << seen.label << " = "
              << escape_control(d.edge->declaration().classes[static_cast<size_t>(seen.label)]);
  std::cout << "\n";
}

void print_json(const Declared& d, const std::vector<Field>& fields, const Seen& seen) {
  Json classes = Json::array(), lengths = Json::object();
  for (size_t i = 0; i < seen.classes.size(); ++i)
    classes.push_back({{"name", d.edge->declaration().classes[i]}, {"samples", seen.classes[i]}});
  for (size_t f = 0; f < fields.size(); ++f)
    if (!seen.lengths[f].empty()) {
      const LengthsOfField l = summed_up(seen.lengths[f], d.sequence_length);
      lengths[fields[f].name] = {{"median", l.median}, {"p95", l.most_of}, {"longest", l.longest}, {"full", l.full}};
    }
  std::cout << text_of({{"data", d.data.by->id()},
                        {"about", d.samples->about("train")},
                        {"train", d.samples->count("train")},
                        {"validation", d.samples->count("validation")},
                        {"read", seen.samples},
                        {"classes", classes},
                        {"sequence_length", d.sequence_length},
                        {"lengths", lengths},
                        {"sample", {{"number", seen.first}, {"text", text_of_ids(d, seen.ids)}}}})
            << "\n";
}

}  // namespace

int show_data(const Arguments& args) {
  const auto planned =
      make_planned(args, source_named(args.positional.empty() ? "run.toml" : args.positional[0], "data"));
  DeclareRequest ask;
  ask.manifest = &planned->manifest;
  ask.plan = &planned->plan;
  ask.probe = installation().probe;
  ask.weights = planned->weights;
  const auto seed = static_cast<uint64_t>(planned->manifest.get("run", "seed").as_int());
  try {
    Declared d = declare(ask, make_host(planned->plan.points, seed));
    say_warnings(d.warnings);
    diagnosed(*d.instances, [&] {
      const std::vector<Field> fields = fields_of(d.data);
      const Seen seen = look(d, fields);
      if (globals().json) print_json(d, fields, seen);
      else print_text(d, fields, seen);
    });
  } catch (const Failure& f) {
    refuse_start(*planned, f);
  }
  return kExitOk;
}

}  // namespace mortise::cli
