/** Cuts `text` in the middle, because the kernel's own words are often at the end. */
export function truncate(text: string, maxCharacters: number): string {
  if (text.length <= maxCharacters) return text
  const begin = Math.ceil((maxCharacters - 1) / 2)
  const end = text.length - (maxCharacters - 1 - begin)
  return `${text.slice(0, begin)}…${text.slice(end)}`.toWellFormed()
}
