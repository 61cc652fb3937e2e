#include "core/cli/bench/matrix.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mortise::cli {
namespace {

namespace fs = std::filesystem;

// A folder with the base that every matrix here names.
class MatrixFile : public testing::Test {
 protected:
  MatrixFile() {
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/base.toml") << "[run]\nlength = 1\n";
  }
  ~MatrixFile() override { fs::remove_all(folder_); }

  Matrix read(const std::string& text) {
    report_ = {};
    const auto root = parse_toml(text, "m.toml", report_);
    EXPECT_TRUE(root);
    return matrix_of(*root, folder_, [](const std::string& key) { return key == "data.text.path"; }, report_);
  }
  Matrix valid(const std::string& text) {
    Matrix matrix = read(text);
    for (const Diagnostic& d : report_.all()) ADD_FAILURE() << d.message;
    return matrix;
  }
  // "m.toml:3:8 what is the case"
  std::string mistake_of(const std::string& text) {
    read(text);
    if (report_.all().size() != 1) return std::to_string(report_.all().size()) + " mistakes";
    const Diagnostic& d = report_.all()[0];
    return (d.positions.empty() || !d.positions[0] ? "" : d.positions[0].text() + " ") + d.message;
  }

  std::string folder_ = (fs::temp_directory_path() / ("matrix." + std::to_string(::getpid()))).string();
  Report report_;
};

using Texts = std::vector<std::string>;

Texts names(const Matrix& matrix) {
  Texts all;
  for (const MatrixRow& row : matrix.rows)
    if (row.is_measured) all.push_back(row.name);
  return all;
}

Texts lines(const MatrixRow& row) {
  Texts all;
  for (const RowLine& line : row.lines) all.push_back(line.text);
  return all;
}

TEST_F(MatrixFile, HasRowsInItsOwnOrderEachALayer) {
  const Matrix m = valid(R"(base = "base.toml"
warmup = 5
[[row]]
name = "vanilla"
[[row]]
name = "+ fp16, small"
data.micro_batch_size = 1
precision.fp16 = {}
[row.optimizer]
lr = 3e-4
[row.optimizer.adamw]
betas = [0.9, 0.95]
)");
  EXPECT_EQ(m.base, folder_ + "/base.toml");
  EXPECT_EQ(m.warmup, 5);
  EXPECT_EQ(names(m), (Texts{"vanilla", "+ fp16, small"}));
  EXPECT_EQ(m.rows[1].file, "fp16-small");
  EXPECT_EQ(lines(m.rows[1]), (Texts{"data.micro_batch_size = 1", "precision.fp16 = {}", "optimizer.lr = 3e-4",
                                     "optimizer.adamw.betas = [0.9, 0.95]"}));
  EXPECT_EQ(m.rows[1].lines[0].key.line, 7);
  EXPECT_EQ(m.rows[1].lines[0].value.column, 25);
}

TEST_F(MatrixFile, OfARowTheManifestIncludesWhatItLiesOn) {
  const Matrix m = valid(R"(base = "base.toml"
[[row]]
name = "a"
program = "bin/own"
[[row]]
name = "b"
from = "a"
data.text.path = "x.txt"
)");
  EXPECT_EQ(manifest_of_row(m, m.rows[0]),
            "# A row of a bench: a. `mortise train` of this file trains it alone.\n"
            "include = [\"" +
                folder_ + "/base.toml\", \"mortise:bench\"]\n");
  EXPECT_EQ(manifest_of_row(m, m.rows[1]),
            "# A row of a bench: b. `mortise train` of this file trains it alone.\n"
            "include = [\"a.toml\"]\n"
            "data.text.path = \"" +
                folder_ + "/x.txt\"\n");
  EXPECT_EQ(m.rows[1].program, folder_ + "/bin/own") << "what a row is run by goes on to those on it";
}

TEST_F(MatrixFile, GivesEveryRowAFileOfItsOwn) {
  const Matrix m = valid(R"(base = "base.toml"
row = [{name = "a b"}, {name = "a-b"}, {name = "+"}, {name = "latest"}, {name = "../x"}]
)");
  Texts files;
  for (const MatrixRow& row : m.rows) files.push_back(row.file);
  EXPECT_EQ(files, (Texts{"a-b", "a-b-2", "row", "latest-2", "x"})) << "`latest` is a link of runs";
}

TEST_F(MatrixFile, MultipliesItsRowsByItsAxes) {
  const Matrix m = valid(R"(base = "base.toml"
[[row]]
name = "a"
[[row]]
name = "b"
[axis]
optimizer = ["adamw", "sgd"]
data.micro_batch_size = [4, 8]
)");
  EXPECT_EQ(names(m),
            (Texts{"a, adamw, micro_batch_size 4", "a, adamw, micro_batch_size 8", "a, sgd, micro_batch_size 4",
                   "a, sgd, micro_batch_size 8", "b, adamw, micro_batch_size 4", "b, adamw, micro_batch_size 8",
                   "b, sgd, micro_batch_size 4", "b, sgd, micro_batch_size 8"}));
  EXPECT_EQ(m.rows.back().below, "b");
  EXPECT_EQ(lines(m.rows.back()), (Texts{"optimizer.sgd = {}", "data.micro_batch_size = 8"}));
  EXPECT_EQ(names(valid("base = \"base.toml\"\n[axis]\noptimizer.lr = [0.1]\n")), (Texts{"lr 0.1"}));
}

TEST_F(MatrixFile, TellsTwoAxesOfOneKeyApart) {
  EXPECT_EQ(names(valid("base = \"base.toml\"\n[axis]\nschedule.over = [1]\nrun.over = [2]\n")),
            (Texts{"schedule.over 1, run.over 2"}));
}

TEST_F(MatrixFile, IsToldFromAManifest) {
  Report report;
  EXPECT_TRUE(is_matrix(*parse_toml("base = \"x\"", "m.toml", report)));
  EXPECT_TRUE(is_matrix(*parse_toml("[axis]", "m.toml", report)));
  EXPECT_FALSE(is_matrix(*parse_toml("[data]", "m.toml", report)));
}

TEST_F(MatrixFile, SaysWhatIsWrongAndWhere) {
  const std::string base = "base = \"base.toml\"\n", row = "[[row]]\nname = \"a\"\n";
  EXPECT_EQ(mistake_of(row), "a matrix names the manifest that its rows lie on");
  EXPECT_EQ(mistake_of("base = 1\n" + row), "m.toml:1:8 `base` is a text, this is a number");
  EXPECT_EQ(mistake_of("base = \"bse.toml\"\n" + row), "m.toml:1:8 no file `bse.toml`");
  EXPECT_EQ(mistake_of(base), "a matrix has rows or axes");
  EXPECT_EQ(report_.all()[0].code, "bad_matrix");
  EXPECT_EQ(mistake_of(base + "rows = 3\n" + row), "m.toml:2:1 a matrix has no key `rows`");
  EXPECT_EQ(report_.all()[0].fixes[0], "[[row]]");
  EXPECT_EQ(mistake_of(base + "[row]\nname = \"a\"\n"), "m.toml:2:1 rows are tables of their own");
  EXPECT_EQ(mistake_of(base + "warmup = -1\n" + row), "m.toml:2:10 `warmup` is a number of steps, 0 to 1,000,000");
  EXPECT_EQ(mistake_of(base + "[[row]]\nprecision.fp16 = {}\n"), "m.toml:2:1 a row has a `name`");
  EXPECT_EQ(mistake_of(base + "[[row]]\nname = \"\"\n"), "m.toml:3:8 `name` is a text, this is empty");
  EXPECT_EQ(mistake_of(base + row + row), "m.toml:5:8 two rows are called `a`");
  EXPECT_EQ(mistake_of(base + "[[row]]\nname = \"plain\"\n[[row]]\nname = \"b\"\nfrom = \"plian\"\n"),
            "m.toml:6:8 no row further up is called `plian`");
  EXPECT_EQ(report_.all()[0].fixes[0], "from = \"plain\"");
  EXPECT_EQ(mistake_of(base + row + "include = [\"x.toml\"]\n"), "m.toml:4:1 a row has no `include`");
  EXPECT_EQ(mistake_of(base + row + "a.b = [{c = 1}]\n"), "m.toml:4:3 `a.b` is a list of tables");
  EXPECT_EQ(mistake_of(base + "[axis]\n"), "m.toml:2:1 `axis` has no key");
  EXPECT_EQ(mistake_of(base + "[axis]\nrun.seed = 1\n"), "m.toml:3:12 `run.seed` of [axis] is a list of values to try");
  EXPECT_EQ(mistake_of(base + "[axis]\noptimizer = [1]\n"),
            "m.toml:3:14 `optimizer` of [axis] is a family: a list of its plugins");
}

TEST_F(MatrixFile, HasNoMoreRowsOneOnAnotherThanAManifestTakesIncludes) {
  std::string text = "base = \"base.toml\"\n[[row]]\nname = \"0\"\n";
  const auto another = [&](int i) {
    text += "[[row]]\nname = \"" + std::to_string(i) + "\"\nfrom = \"" + std::to_string(i - 1) + "\"\n";
  };
  for (int i = 1; i <= 6; ++i) another(i);
  valid(text);
  another(7);
  EXPECT_EQ(mistake_of(text), "m.toml:24:8 more than 6 rows lie one on another");
}

TEST_F(MatrixFile, HasNoMoreCombinationsThanCanBeRun) {
  std::string values = "0";
  for (int i = 1; i < 40; ++i) values += ", " + std::to_string(i);
  EXPECT_EQ(mistake_of("base = \"base.toml\"\n[axis]\nrun.seed = [" + values + "]\nrun.notes = [" + values + "]\n"),
            "more than 1,000 rows");
}

}  // namespace
}  // namespace mortise::cli
