/** Such as `350ms`, `12s`, `3m05s`, `2h10m` or `3d`. */
export function ageText(ms: bigint | number): string {
  const milliseconds = Number(ms)
  if (milliseconds < 1000) return `${Math.round(milliseconds)}ms`
  const seconds = Math.floor(milliseconds / 1000)
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes}m${String(seconds % 60).padStart(2, '0')}s`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours}h${String(minutes % 60).padStart(2, '0')}m` : `${Math.floor(hours / 24)}d`
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

/** Such as `12.5 MiB`. */
export function bytesText(bytes: bigint | number): string {
  let amount = Number(bytes)
  let unit = 0
  for (; amount >= 1024 && unit < UNITS.length - 1; unit += 1) amount /= 1024
  const digits = unit === 0 || amount >= 100 ? 0 : 1
  return `${amount.toFixed(digits)} ${UNITS[unit]}`
}

/** Escapes control characters: a container chooses its names, which could move the terminal's cursor. */
export function plainText(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0
    return `\\u${code.toString(16).padStart(4, '0')}`
  })
}
