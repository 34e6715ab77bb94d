/*
 * Whether a sanitizer is compiled in. It looks at every access and costs many times the
 * time, so long tests then walk less of the same; in full they run in the release build. TSan looks
 * for races only: one run in which all threads meet is enough there.
 */
#ifndef TESTS_LIB_SANITIZED_H
#define TESTS_LIB_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#ifdef __SANITIZE_THREAD__
enum { TSAN = 1 };
#else
enum { TSAN = 0 };
#endif

#endif
