// See flags.h. Each type that a flag can set is one line of the list at the end.
#include "cli/flags.h"

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace hone {

Flag* Flag::range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return this;
}

Flag* Flag::range(double low, double high) {
  option_->check(CLI::Range(low, high));
  option_->check(CLI::Validator([](std::string& text) {  // which compares as outside of nothing
    return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number" : std::string();
  }, ""));
  return this;
}

Flag* Flag::one_of(std::initializer_list<const char*> words) {
  option_->check(CLI::IsMember(std::set<std::string>(words.begin(), words.end())));
  return this;
}

Flag* Flag::bytes() {
  option_->transform(CLI::AsSizeValue(false));
  return this;
}

Flag* Flag::fits_64_bits() {
  option_->check(CLI::Validator([](std::string& text) {
    errno = 0;
    std::strtoull(text.c_str(), nullptr, 10);
    return errno == ERANGE ? text + " is larger than 64 bits" : std::string();
  }, ""));
  return this;
}

Flag* Flag::required() {
  option_->required();
  return this;
}

Flag* Flag::needs(Flag* other) {
  option_->needs(other->option_);
  return this;
}

Flag* Flag::excludes(Flag* other) {
  option_->excludes(other->option_);
  return this;
}

Flag* Flag::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Flag* Flag::one_value_each() {
  option_->allow_extra_args(false);
  return this;
}

Flag* Flag::show_default() {
  option_->capture_default_str();
  return this;
}

Flag* Flag::group(const char* heading) {
  option_->group(heading);
  return this;
}

bool Flag::given() const { return option_->count() > 0; }
std::string Flag::name() const { return option_->get_name(); }

template <typename T>
Flag* Flags::Add(const std::string& names, T& value, const std::string& help) {
  return &flags_.emplace_back(app_.add_option(names, value, help));
}

template <typename T>
Flag* Flags::AddSwitch(const std::string& names, T& value, const std::string& help) {
  return &flags_.emplace_back(app_.add_flag(names, value, help));
}

template Flag* Flags::AddSwitch(const std::string&, bool&, const std::string&);
template Flag* Flags::AddSwitch(const std::string&, int&, const std::string&);

template Flag* Flags::Add(const std::string&, std::string&, const std::string&);
template Flag* Flags::Add(const std::string&, int&, const std::string&);
template Flag* Flags::Add(const std::string&, int64_t&, const std::string&);
template Flag* Flags::Add(const std::string&, uint64_t&, const std::string&);
template Flag* Flags::Add(const std::string&, float&, const std::string&);
template Flag* Flags::Add(const std::string&, double&, const std::string&);
template Flag* Flags::Add(const std::string&, std::optional<std::string>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::optional<int>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::optional<uint64_t>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::optional<float>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::optional<double>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::vector<int>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::vector<double>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::vector<uint64_t>&, const std::string&);
template Flag* Flags::Add(const std::string&, std::vector<std::string>&, const std::string&);

}  // namespace hone
