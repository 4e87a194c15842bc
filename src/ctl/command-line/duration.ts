import { UsageError } from '../command.ts'

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
}

/** The milliseconds of `500ms`, `5s`, `1m30s`, or of a number of seconds. Throws {@link UsageError}. */
export function parseDuration(what: string, text: string): number {
  if (/^\d{1,9}(\.\d{1,6})?$/.test(text)) return Math.round(Number(text) * 1000)
  const parts = [...text.matchAll(/(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h)/g)]
  const whole = parts.map(([part]) => part).join('')
  if (parts.length === 0 || whole !== text)
    throw new UsageError(`${what} ${JSON.stringify(text)}: not a time, want one such as 500ms, 5s or 1m30s`)
  return Math.round(
    parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (UNITS[unit] ?? 0), 0),
  )
}
