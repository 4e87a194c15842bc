/** A text of at most so many characters: of a longer one beginning and end, for the kernel's word is at the end. */
export function truncate(text: string, mostCharacters: number): string {
  if (text.length <= mostCharacters) return text
  const begin = Math.ceil((mostCharacters - 1) / 2)
  const end = text.length - (mostCharacters - 1 - begin)
  return `${text.slice(0, begin)}…${text.slice(end)}`.toWellFormed()
}
