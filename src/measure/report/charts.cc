// See charts.h.
#include "measure/report/charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostHeats = 16, kMostCurves = 8;  // of one figure
// Of a profile the table has all figures, charts all but these.
constexpr std::string_view kTableOnly[] = {"ttft_ms.p99", "tpot_ms.p99", "e2e_ms.p99", "itl_ms.p50"};

// Where a cell lies on one axis: a number, or a word.
struct Mark {
  double number = NAN;
  std::string word;  // as it is written
  bool is_number() const { return !std::isnan(number); }
  bool operator<(const Mark& other) const {
    if (is_number() != other.is_number()) return is_number();
    return is_number() ? number < other.number : word < other.word;
  }
};
using Marks = std::vector<Mark>;

// A figure's name taken apart.
struct Place {
  std::string name;                                 // before the bracket
  std::string cell;                                 // inside, as it is
  std::vector<std::pair<std::string, Mark>> parts;  // "key=value"
  bool on_axes = false;  // every part has a key, and there are numbers or several parts: a place on axes, not a name
};

Place PlaceOf(const std::string& figure) {
  Place place;
  const size_t open = figure.find('[');
  place.name = figure.substr(0, open);
  if (open == std::string::npos || figure.back() != ']') return place;
  place.cell = figure.substr(open + 1, figure.size() - open - 2);
  bool keys = true, numbers = false;
  for (size_t at = 0; at <= place.cell.size();) {
    const size_t end = std::min(place.cell.find(',', at), place.cell.size());
    const std::string part = place.cell.substr(at, end - at);
    at = end + 1;
    const size_t equals = part.find('=');
    keys &= equals != std::string::npos && equals > 0;
    if (!keys) break;
    Mark mark{NAN, part.substr(equals + 1)};
    double value = 0;
    const auto [stop, error] = std::from_chars(mark.word.data(), mark.word.data() + mark.word.size(), value);
    if (error == std::errc() && stop == mark.word.data() + mark.word.size()) mark.number = value;
    numbers |= mark.is_number();
    place.parts.emplace_back(part.substr(0, equals), std::move(mark));
  }
  place.on_axes = keys && (numbers || place.parts.size() > 1);
  return place;
}

ordered_json Point(const ordered_json& x, const Interval& y) {
  if (!std::isfinite(y.value)) return ordered_json::array({x, nullptr, nullptr, nullptr});
  const bool bounded = y.confidence > 0 && std::isfinite(y.low) && std::isfinite(y.high);
  return ordered_json::array({x, Rounded(y.value), bounded ? ordered_json(Rounded(y.low)) : ordered_json(nullptr),
                              bounded ? ordered_json(Rounded(y.high)) : ordered_json(nullptr)});
}

ordered_json Lines(const std::string& title, const std::string& x, const std::string& y) {
  ordered_json chart;
  chart["kind"] = "lines";
  chart["title"] = title;
  chart["x"] = x;
  chart["y"] = y;
  chart["series"] = ordered_json::array();
  return chart;
}

// Points by x of one series.
using Curve = std::map<double, Interval>;

void AddSeries(ordered_json* chart, const std::string& name, const Curve& curve) {
  ordered_json series;
  series["name"] = name;
  series["points"] = ordered_json::array();
  for (const auto& [x, y] : curve) series["points"].push_back(Point(x, y));
  (*chart)["series"].push_back(std::move(series));
}

// All figures of one name whose cells lie on axes.
struct Grid {
  std::vector<std::string> keys;  // of the first cell
  std::map<Marks, Interval> cells;
};

// The axes that have more than one value.
std::vector<bool> Wide(const Grid& grid) {
  std::vector<bool> wide(grid.keys.size());
  for (const auto& [at, interval] : grid.cells) {
    for (size_t d = 0; d < at.size(); ++d) wide[d] = wide[d] || at[d].word != grid.cells.begin()->first[d].word;
  }
  return wide;
}

// What tells a cell from the others, axes `a` and `b` aside: "kv bf16, output 32".
std::string Others(const Grid& grid, const std::vector<bool>& wide, const Marks& at, size_t a, size_t b) {
  std::string others;
  for (size_t d = 0; d < at.size(); ++d) {
    if (d != a && d != b && wide[d]) others += (others.empty() ? "" : ", ") + grid.keys[d] + " " + at[d].word;
  }
  return others;
}

std::map<std::string, Grid> Grids(const LedgerEntry& entry, std::vector<std::string>* order) {
  std::map<std::string, Grid> grids;
  for (const Figure& figure : entry.figures) {
    const Place place = PlaceOf(figure.name);
    if (!place.on_axes) continue;
    Grid& grid = grids[place.name];
    std::vector<std::string> keys;
    Marks at;
    for (const auto& [key, mark] : place.parts) {
      keys.push_back(key);
      at.push_back(mark);
    }
    if (grid.cells.empty()) {
      grid.keys = keys;
      order->push_back(place.name);
    }
    if (keys == grid.keys) grid.cells[at] = figure.interval;
  }
  return grids;
}

// Curves over dimension `along`, one for each combination of the others.
void AddCurves(const std::string& name, const Grid& grid, const Grid* base, size_t along, ordered_json* charts) {
  ordered_json chart = Lines(name + " over " + grid.keys[along], grid.keys[along], UnitOf(name));
  size_t longest = 0;
  const std::vector<bool> wide = Wide(grid);
  for (const auto& [at, interval] : grid.cells) {
    if (!at[along].is_number()) return;
  }
  for (const auto& [which, of] :
       {std::pair<const char*, const Grid*>("", &grid), std::pair<const char*, const Grid*>("before", base)}) {
    if (of == nullptr) continue;
    std::map<std::string, Curve> curves;
    for (const auto& [at, interval] : of->cells) {
      if (at[along].is_number()) curves[Others(grid, wide, at, along, along)][at[along].number] = interval;
    }
    for (const auto& [others, curve] : curves) {
      longest = std::max(longest, curve.size());
      std::string label = others.empty() ? name : others;
      if (*which != 0) label += std::string(", ") + which;
      if (curve.size() > 1) AddSeries(&chart, label, curve);
    }
  }
  if (longest > 1 && chart["series"].size() <= kMostCurves) charts->push_back(std::move(chart));
}

// One heat map of `cells` over dimensions x and y.
void AddHeat(const std::string& title, const Grid& grid, const std::map<Marks, Interval>& cells, size_t x, size_t y, const std::string& unit, std::optional<double> around, ordered_json* charts) {
  std::set<Mark> xs, ys;
  for (const auto& [at, interval] : cells) {
    xs.insert(at[x]);
    ys.insert(at[y]);
  }
  if (xs.size() < 2 || ys.size() < 2) return;
  ordered_json chart;
  chart["kind"] = "heat";
  chart["title"] = title;
  chart["x"] = grid.keys[x];
  chart["y"] = grid.keys[y];
  chart["unit"] = unit;
  chart["xs"] = ordered_json::array();
  chart["ys"] = ordered_json::array();
  for (const Mark& mark : xs) chart["xs"].push_back(mark.word);
  for (const Mark& mark : ys) chart["ys"].push_back(mark.word);
  chart["cells"] = ordered_json::array();
  for (const auto& [at, interval] : cells) {
    if (!std::isfinite(interval.value)) continue;
    chart["cells"].push_back(ordered_json::array({std::distance(xs.begin(), xs.find(at[x])),
                                                  std::distance(ys.begin(), ys.find(at[y])), Rounded(interval.value)}));
  }
  if (around) chart["around"] = *around;
  charts->push_back(std::move(chart));
}

// Heat maps of a grid of two dimensions or more: the two with the most values are the axes, each combination of the
// others is a map of its own.
void AddHeats(const std::string& title, const Grid& grid, const std::string& unit, std::optional<double> around,
              ordered_json* charts) {
  if (grid.keys.size() < 2) return;
  std::vector<std::set<Mark>> values(grid.keys.size());
  for (const auto& [at, interval] : grid.cells) {
    for (size_t d = 0; d < at.size(); ++d) values[d].insert(at[d]);
  }
  std::vector<size_t> dims(grid.keys.size());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = d;
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return values[a].size() > values[b].size(); });
  const size_t x = std::min(dims[0], dims[1]), y = std::max(dims[0], dims[1]);
  const std::vector<bool> wide = Wide(grid);
  std::map<std::string, std::map<Marks, Interval>> slices;  // by the other dimensions
  for (const auto& [at, interval] : grid.cells) slices[Others(grid, wide, at, x, y)][at] = interval;
  size_t drawn = 0;
  for (const auto& [others, cells] : slices) {
    if (drawn++ == kMostHeats) break;
    AddHeat(title + (others.empty() ? "" : ", " + others), grid, cells, x, y, unit, around, charts);
  }
}

// Cell by cell, where both have it.
Grid Ratio(const Grid& grid, const Grid& base) {
  Grid ratio{grid.keys, {}};
  for (const auto& [at, interval] : grid.cells) {
    const auto it = base.cells.find(at);
    if (it != base.cells.end() && it->second.value > 0) ratio.cells[at] = {interval.value / it->second.value, 0, 0, 0};
  }
  return ratio;
}

// ttft_ms.p50 ... p999 of a load without cells: a curve over the percentiles.
void AddPercentiles(const LedgerEntry& entry, const std::optional<LedgerEntry>& base, ordered_json* charts) {
  constexpr const char* kKeys[] = {"p50", "p90", "p95", "p99", "p999"};
  for (const char* latency : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    ordered_json chart = Lines(std::string(latency) + " by percentile", "percentile", "ms");
    chart["categories"] = kKeys;
    const auto add = [&](const LedgerEntry& of, const std::string& name) {
      ordered_json series;
      series["name"] = name;
      series["points"] = ordered_json::array();
      for (const char* key : kKeys) {
        for (const Figure& figure : of.figures) {
          if (figure.name == std::string(latency) + "." + key) series["points"].push_back(Point(key, figure.interval));
        }
      }
      if (!series["points"].empty()) chart["series"].push_back(std::move(series));
    };
    add(entry, ExperimentName(entry));
    if (base) add(*base, ExperimentName(*base));
    if (!chart["series"].empty()) charts->push_back(std::move(chart));
  }
}

// The points of a sweep: what was answered a second, and the latency then.
void AddThroughput(const LedgerEntry& entry, ordered_json* charts) {
  std::map<std::string, std::map<std::string, Interval>> points;  // by cell, by name
  for (const Figure& figure : entry.figures) {
    const Place place = PlaceOf(figure.name);
    if (!place.cell.empty() && !place.on_axes) points[place.cell][place.name] = figure.interval;
  }
  for (const char* latency : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    ordered_json chart = Lines(std::string(latency) + " against throughput", "requests/s answered", "ms");
    for (const char* key : {"p50", "p99"}) {
      Curve curve;
      for (const auto& [cell, figures] : points) {
        const auto rate = figures.find("request_s"), value = figures.find(std::string(latency) + "." + key);
        if (rate != figures.end() && value != figures.end()) curve[rate->second.value] = value->second;
      }
      if (curve.size() > 1) AddSeries(&chart, key, curve);
    }
    if (!chart["series"].empty()) charts->push_back(std::move(chart));
  }
}

// Figures whose cells are words, such as accuracy[sort]: a dot each, with its interval.
void AddNamed(const LedgerEntry& entry, const std::optional<LedgerEntry>& base, ordered_json* charts) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> cells;
  for (const Figure& figure : entry.figures) {
    const Place place = PlaceOf(figure.name);
    if (place.cell.empty() || place.on_axes || place.name.find("ratio of ") == 0 || entry.kind == "load") continue;
    if (cells[place.name].empty()) order.push_back(place.name);
    cells[place.name].push_back(place.cell);
  }
  for (const std::string& name : order) {
    ordered_json chart = Lines(name, "", UnitOf(name));
    chart["categories"] = cells[name];
    chart["dots"] = true;
    const auto add = [&](const LedgerEntry& of, const std::string& label) {
      ordered_json series;
      series["name"] = label;
      series["points"] = ordered_json::array();
      for (const Figure& figure : of.figures) {
        const Place place = PlaceOf(figure.name);
        if (place.name == name && !place.cell.empty()) series["points"].push_back(Point(place.cell, figure.interval));
      }
      if (!series["points"].empty()) chart["series"].push_back(std::move(series));
    };
    add(entry, ExperimentName(entry));
    if (base) add(*base, ExperimentName(*base));
    charts->push_back(std::move(chart));
  }
}

}  // namespace

std::string ExperimentName(const LedgerEntry& entry) { return entry.id > 0 ? fmt::format("experiment {}", entry.id) : "this run"; }

std::string UnitOf(const std::string& figure) {
  const std::string name = figure.substr(0, figure.find('['));
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (name.rfind("ratio of ", 0) == 0) return "";
  if (has("_ms")) return "ms";
  if (has("tok_s")) return "tok/s";
  if (has("request_s") || has("goodput_s")) return "requests/s";
  if (has("_bytes")) return "bytes";
  if (has("percent")) return "%";
  if (name.size() > 2 && name.substr(name.size() - 2) == "_s") return "s";
  return "";
}

ordered_json ReportCharts(const LedgerEntry& entry, const std::optional<LedgerEntry>& base) {
  ordered_json charts = ordered_json::array();
  std::vector<std::string> order, unused;
  const std::map<std::string, Grid> grids = Grids(entry, &order);
  std::map<std::string, Grid> before;
  if (base) before = Grids(*base, &unused);
  for (const std::string& name : order) {
    if (entry.kind == "profile" && std::find(std::begin(kTableOnly), std::end(kTableOnly), name) != std::end(kTableOnly)) continue;
    const Grid& grid = grids.at(name);
    const auto it = before.find(name);
    const Grid* other = it != before.end() && it->second.keys == grid.keys ? &it->second : nullptr;
    AddHeats(name, grid, UnitOf(name), std::nullopt, &charts);
    if (other != nullptr) AddHeats(name + ", ratio to before", Ratio(grid, *other), "", 1.0, &charts);
    for (size_t d = 0; d < grid.keys.size(); ++d) AddCurves(name, grid, other, d, &charts);
  }
  AddPercentiles(entry, base, &charts);
  if (entry.kind == "load") AddThroughput(entry, &charts);
  AddNamed(entry, base, &charts);
  return charts;
}

}  // namespace hone
