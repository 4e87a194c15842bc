import { readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { abortable } from '../../../base/abort.ts'
import { type Context, UsageError } from '../../command.ts'

const PROMPT = 'agent-ctl> '
const HISTORY_LINES = 500
const LEAVING: readonly string[] = ['exit', 'quit']

export async function run(context: Context): Promise<undefined> {
  await context.session()
  if (context.io.stdin.isTTY === true) await readKeys(context)
  else
    for await (const line of createInterface({ input: context.io.stdin }))
      if (!(await runs(line, context))) return
}

/** Returns whether the shell continues. */
async function runs(line: string, context: Context): Promise<boolean> {
  const text = line.trim()
  if (LEAVING.includes(text)) return false
  if (text !== '') await context.runLine(() => wordsOf(text))
  return true
}

/** A running command has the terminal to itself, and Ctrl-C ends only the command. */
async function readKeys(context: Context): Promise<void> {
  const file = join(homedir(), '.agent_ctl_history')
  const text = await readFile(file, 'utf8').catch(() => '')
  let history = text === '' ? [] : text.split('\n')
  const keep = (all: readonly string[]) => {
    history = [...all]
  }
  try {
    for (;;) {
      const line = await lineOf(context, history, keep)
      if (line === undefined || !(await runs(line, context))) return
    }
  } finally {
    // Mode 600, because requests may hold secrets. A home folder that cannot be written is no failure.
    await writeFile(file, history.join('\n'), { mode: 0o600 }).catch(() => {})
  }
}

/** Returns undefined at Ctrl-D; Ctrl-C starts a new line. */
async function lineOf(
  context: Context,
  history: readonly string[],
  keep: (history: readonly string[]) => void,
): Promise<string | undefined> {
  const { io, signal } = context
  const lines = createInterface({
    input: io.stdin,
    output: io.stdout,
    prompt: PROMPT,
    terminal: true,
    history: [...history],
    historySize: HISTORY_LINES,
    removeHistoryDuplicates: true,
    completer: (line: string) => [completionsOf(line, context), line.split(' ').at(-1) ?? ''],
  })
  lines.on('history', keep)
  lines.on('SIGINT', () => {
    lines.write(null, { ctrl: true, name: 'e' })
    lines.write(null, { ctrl: true, name: 'u' })
    io.stdout.write('\n')
    lines.prompt()
  })
  // After Ctrl-Z, Node reads no keys until it prompts.
  lines.on('SIGCONT', () => lines.prompt(true))
  const { promise, resolve } = Promise.withResolvers<string | undefined>()
  lines.once('line', resolve)
  lines.once('close', () => resolve(undefined))
  lines.prompt()
  try {
    return await abortable(promise, signal)
  } finally {
    lines.close()
  }
}

/** Splits at blanks outside of both kinds of quotes, as a shell does. */
export function wordsOf(line: string): readonly string[] {
  const parts = [...line.matchAll(/\s+|'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|[^\s'"\\]+|(.)/gs)]
  const words: string[] = []
  let word: string | undefined
  for (const [text, single, double, escaped, unclosed] of parts) {
    if (unclosed !== undefined) throw new UsageError(`${line.trim()}: a quote is not closed`)
    if (/^\s+$/.test(text)) {
      if (word !== undefined) words.push(word)
      word = undefined
      continue
    }
    word = (word ?? '') + (single ?? double?.replace(/\\(.)/gs, '$1') ?? escaped ?? text)
  }
  return word === undefined ? words : [...words, word]
}

/** The first words of commands, or the options of the line's command. */
export function completionsOf(line: string, { commands }: Pick<Context, 'commands'>): string[] {
  const words = line.trimStart().split(/\s+/)
  const last = words.at(-1) ?? ''
  const command = commands.find(({ name }) => name === words[0])
  const all =
    words.length === 1
      ? [...new Set(commands.map(({ name }) => name.split(' ')[0] ?? name)), ...LEAVING]
      : (command?.options ?? []).map(({ name }) => `--${name}`)
  return all.filter((each) => each.startsWith(last)).toSorted()
}
