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
double Bf16ChainsAmx(int rounds);  // VDPBF16PS
double Bf16TilesAmx(int rounds);   // TDPBF16PS, a round being one pass over two panels of 16 KiB
double CodeTilesAmx(int rounds);   // TDPBSSD

}  // namespace hone
