#include "words.h"

#include <stdio.h>

static int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

static bool decode(char *word) {
  char *to = word;
  for (const char *from = word; *from != '\0'; from++) {
    char byte = *from;
    if (byte == '%') {
      int high = hex_digit(from[1]);
      int low = high < 0 ? -1 : hex_digit(from[2]);
      if (low < 0 || (high == 0 && low == 0)) return false;
      byte = (char)(high << 4 | low);
      from += 2;
    }
    *to++ = byte;
  }
  *to = '\0';
  return true;
}

int words_split(char *line, char **words, int max) {
  int count = 0;
  for (char *word = line; word != NULL;) {
    if (count == max) return -1;
    char *end = word;
    while (*end != ' ' && *end != '\0') end++;
    char *next = *end == ' ' ? end + 1 : NULL;
    *end = '\0';
    if (!decode(word)) return -1;
    words[count++] = word;
    word = next;
  }
  words[count] = NULL;
  return count;
}

bool word_number(const char *word, uint64_t max, uint64_t *number) {
  if (*word == '\0') return false;
  uint64_t value = 0;
  for (; *word != '\0'; word++) {
    if (*word < '0' || *word > '9') return false;
    uint64_t digit = (uint64_t)(*word - '0');
    if (value > (max - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *number = value;
  return value <= max;
}

void word_encode(const char *text, char *encoded, size_t room) {
  char *end = encoded + room - 1;
  for (; *text != '\0' && encoded + 3 <= end; text++) {
    if (*text > ' ' && *text <= '~' && *text != '%')
      *encoded++ = *text;
    else
      encoded += sprintf(encoded, "%%%02X", (unsigned char)*text);
  }
  *encoded = '\0';
}
