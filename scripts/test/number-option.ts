/** Throws an error that names the option and the wanted number. */
export function numberAfter(option: string, text: string | undefined, largest: number): number {
  if (text !== undefined && /^\d{1,10}$/.test(text) && Number(text) <= largest) return Number(text)
  throw new Error(`${option} ${text ?? ''}: want a number from 0 to ${largest}`)
}
