import { styleText } from 'node:util'
import { writeWhole } from '../../client/container/stdio.ts'
import { type Column, table } from '../../client/output/table.ts'
import type { Context } from '../command.ts'

/** Resolves once stdout has taken the text. Throws `OutputClosed` when it has lost its reader. */
export async function print({ io }: Pick<Context, 'io'>, text: string): Promise<void> {
  await writeWhole(io.stdout, text)
}

export async function printJson(context: Pick<Context, 'io'>, value: unknown): Promise<void> {
  await print(context, `${JSON.stringify(value, jsonValue)}\n`)
}

export async function printAs(
  context: Pick<Context, 'io' | 'output'>,
  { text, value }: { readonly text: string; readonly value: unknown },
): Promise<void> {
  if (context.output === 'json') await printJson(context, value)
  else await print(context, text)
}

export async function printPretty(context: Pick<Context, 'io'>, value: unknown): Promise<void> {
  await print(context, `${JSON.stringify(value, jsonValue, 2)}\n`)
}

/** A table that fits the terminal, or one JSON value a line. */
export async function printRows<Row>(
  context: Context,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
): Promise<void> {
  if (context.output === 'json') for (const row of rows) await printJson(context, row)
  else {
    const text = table(columns, rows, terminalWidth(context))
    await print(context, context.colors ? text.replace(/^.*$/m, bold) : text)
  }
}

function bold(line: string): string {
  return styleText('bold', line, { validateStream: false })
}

/** On a terminal the table replaces what the screen showed. */
export async function printScreen<Row>(
  context: Pick<Context, 'io'>,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
): Promise<void> {
  const isTerminal = context.io.stdout.isTTY === true
  const text = table(columns, rows, terminalWidth(context))
  // The cursor moves to the top left, and the rest is erased.
  await print(context, isTerminal ? `\x1b[H\x1b[J${text}` : text)
}

/** undefined when stdout is no terminal, or one of an unknown width. */
function terminalWidth({ io }: Pick<Context, 'io'>): number | undefined {
  return io.stdout.isTTY === true && (io.stdout.columns ?? 0) > 0 ? io.stdout.columns : undefined
}

/** As in the JSON form of protocol buffers: decimal texts for 64-bit numbers, base64 for bytes. */
function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64')
  return value
}
