import { LIMITS, Totals } from '../../src/rpc/limits.ts'

const MIB = 1024 * 1024
const number = (value: number) => value.toLocaleString('en-US')
const mebibytes = (value: number) => `${value / MIB} MiB`

/** Writes the numbers of `LIMITS` into the tables of the page, whose words stay. Throws for a limit without a row. */
export function limitsPage(page: string): string {
  const { connection, elements, keyed, messageBytes, streamMessageBytes } = LIMITS
  const reserves: Readonly<Record<string, { readonly reserve: number }>> = LIMITS.total
  let written = page
  const write = (first: string, cells: readonly (string | undefined)[]) => {
    written = withCells(written, first, cells)
  }
  for (const { name, limit } of new Totals().uses()) {
    const shown = name === 'bytes' ? `${number(limit)} (${mebibytes(limit)})` : number(limit)
    const reserve = reserves[name]?.reserve
    write(`\`${name}\``, [shown, reserve === undefined ? '' : number(reserve)])
  }
  const message = mebibytes(messageBytes)
  const { openCalls, reservedCalls, openStreams, requestBytes, answerBytes, headerMs, streams } = connection
  const seconds = `${headerMs / 1000} s`
  write('a message', [message, `${message}, ${streamMessageBytes / 1024} KiB in a stream`])
  write('open calls', [
    `${number(openCalls)}, and ${reservedCalls} more that have the reserve`,
    `${openStreams}; clients hold back what is more`,
  ])
  write('streams', ['', String(streams)])
  write('bytes of the requests of open calls', [mebibytes(requestBytes), ''])
  write('answers that are not read', [
    `no more requests are served while any wait; ${mebibytes(answerBytes)} close the connection`,
  ])
  write('elements of a request', [number(elements), number(elements)])
  write('an idempotency key', [`${keyed.keyBytes} bytes`])
  write('calls that run, and outcomes', [number(keyed.outcomes)])
  write('an outcome', [`${keyed.outcomeBytes / 1024} KiB`])
  write('all outcomes', [mebibytes(keyed.totalBytes)])
  write('the time since a call has ended', [`${keyed.ageMs / 60_000} minutes`])
  write('time for a frame header, or the preface of HTTP/2', [seconds, seconds])
  return written
}

/** Replaces the cells after the first one of the row that begins with `first`; undefined keeps a cell. */
function withCells(page: string, first: string, cells: readonly (string | undefined)[]): string {
  const lines = page.split('\n')
  const index = lines.findIndex((line) => line.startsWith(`| ${first} |`))
  const row = lines[index]
  if (row === undefined) throw new Error(`the page has no row "${first}"`)
  const before = row.split('|').slice(2, -1)
  const after = before.map((cell, at) => {
    const wanted = cells[at]
    return wanted === undefined ? cell : wanted === '' ? ' ' : ` ${wanted} `
  })
  return lines.with(index, `| ${first} |${after.join('|')}|`).join('\n')
}
