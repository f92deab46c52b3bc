// The flags and positionals of one command. A thin face over CLI11, whose templates are compiled in flags.cc only: a command
// that includes this header compiles in a third of the time of one that includes the library.
#pragma once

#include <deque>
#include <initializer_list>
#include <string>

namespace CLI {
class App;
class Option;
}

namespace hone {

// One flag or positional. Every setter returns the flag itself, so that they chain. Not thread-safe.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag* range(int low, int high);        // refuses numbers outside of low ... high
  Flag* range(double low, double high);
  Flag* one_of(std::initializer_list<const char*> words);
  Flag* bytes();                         // reads sizes with units: 8MiB, 3GiB, 512
  Flag* fits_64_bits();                  // refuses integers that 64 bits do not hold
  Flag* required();
  Flag* needs(Flag* other);              // given only together with `other`
  Flag* excludes(Flag* other);
  Flag* delimiter(char between);         // of the values of a list
  Flag* one_value_each();                // of a list: the flag is repeated for each value
  Flag* show_default();                  // in --help, as the variable says now
  Flag* group(const char* heading);      // of --help
  bool given() const;                    // on the command line, in the environment or in the --config file
  std::string name() const;              // as it is written: "--bits"

 private:
  CLI::Option* option_;
};

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // "-p,--prompt" is a flag of these names, "MODEL" a positional. `value` must outlive the parsing and is written only when the
  // flag is given. T is a type of the list at the end of flags.cc. The result lives as long as this object.
  template <typename T>
  Flag* Add(const std::string& names, T& value, const std::string& help);
  // A flag without a value; "!--no-x" sets false. T is bool, or int with a default value as in "--sweep{5}".
  template <typename T>
  Flag* AddSwitch(const std::string& names, T& value, const std::string& help);

 private:
  CLI::App& app_;
  std::deque<Flag> flags_;  // stable addresses
};

}  // namespace hone
