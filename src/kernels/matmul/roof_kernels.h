// The loops behind roof.h, one set an ISA. Reads return nothing useful; chains return the operations done.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace hone {

void ReadBytesAvx2(const uint8_t* p, size_t bytes);
void ReadBytesAvx512(const uint8_t* p, size_t bytes);
double CodeChainsAvx2(int rounds);  // VPMADDUBSW, VPMADDWD, VPADDD: an exact step without VNNI
double CodeChainsVnni(int rounds);  // VPDPBUSD
double FloatChainsAvx2(int rounds);
double FloatChainsAvx512(int rounds);

}  // namespace hone
