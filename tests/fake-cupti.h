/* SPDX-License-Identifier: Apache-2.0
 *
 * CUPTI's functions of fake-cupti.c, and what a fake GPU tells it: a kernel ran.
 */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
void fake_cupti_kernel(double ms);

int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *),
                                   void (*complete)(void *, uint32_t, uint8_t *, size_t,
                                                    size_t));
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flags);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);

#pragma GCC visibility pop
#endif
