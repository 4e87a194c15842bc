/**
 * A path as the kernel prints it in its tables (mountinfo, swaps): space, tab, newline, backslash and `#` stand there
 * as a backslash and three octal digits.
 */
export function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}
