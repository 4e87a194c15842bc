import { styleText } from 'node:util'
import { writeWhole } from '../../client/container/stdio.ts'
import type { Context } from '../command.ts'
import { type Column, table } from './table.ts'

/** Writes to the tool's stdout and waits until it is taken. Throws `OutputClosed` when its reader has gone. */
export async function print({ io }: Pick<Context, 'io'>, text: string): Promise<void> {
  await writeWhole(io.stdout, text)
}

/** Writes one JSON value a line. */
export async function printJson(context: Pick<Context, 'io'>, value: unknown): Promise<void> {
  await print(context, `${JSON.stringify(value, jsonValue)}\n`)
}

/** A text for people, or one JSON value in a line for programs. */
export async function printAs(
  context: Pick<Context, 'io' | 'output'>,
  { text, value }: { readonly text: string; readonly value: unknown },
): Promise<void> {
  if (context.output === 'json') await printJson(context, value)
  else await print(context, text)
}

/** Writes one JSON value over several lines, for people. */
export async function printPretty(context: Pick<Context, 'io'>, value: unknown): Promise<void> {
  await print(context, `${JSON.stringify(value, jsonValue, 2)}\n`)
}

/** Rows as a table that fits the terminal, or as one JSON value a line. */
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

/** Rows as a table; on a terminal in place of what the screen showed before. */
export async function printScreen<Row>(
  context: Pick<Context, 'io'>,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
): Promise<void> {
  const isTerminal = context.io.stdout.isTTY === true
  const text = table(columns, rows, terminalWidth(context))
  // The cursor goes to the top left, and what was below is erased.
  await print(context, isTerminal ? `\x1b[H\x1b[J${text}` : text)
}

/** The columns of the terminal; undefined when stdout is none. */
function terminalWidth({ io }: Pick<Context, 'io'>): number | undefined {
  return io.stdout.isTTY === true && (io.stdout.columns ?? 0) > 0 ? io.stdout.columns : undefined
}

/** 64-bit numbers are decimal texts, as in the JSON form of protocol buffers, and bytes are base64. */
function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64')
  return value
}
