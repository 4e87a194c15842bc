import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export type Step =
  | { readonly do: 'write' | 'append'; readonly path: string; readonly text: string }
  | { readonly do: 'insert' | 'replace'; readonly path: string; readonly line: string; readonly text: string }
  | { readonly do: 'run'; readonly commands: readonly string[] }

const SHOWN = ['mermaid', 'text']

/**
 * The steps of a page: each fenced block with the instruction that ends the paragraph before it.
 *
 * - Write `FILE`:
 * - In `FILE`, at the end, add:
 * - In `FILE`, after the line `LINE`, add:
 * - In `FILE`, in place of the line `LINE`, write:
 * - Run:
 *
 * Throws for any other instruction. Blocks of `mermaid` and `text` are no steps.
 */
export function stepsOf(markdown: string): readonly Step[] {
  const blocks = markdown.matchAll(/^```(\w*)\n(.*?)^```$/gms)
  let end = 0
  const steps: Step[] = []
  for (const block of blocks) {
    const [whole, language = '', text = ''] = block
    const paragraph = markdown.slice(end, block.index).trimEnd().split(/\n\n/).at(-1) ?? ''
    end = block.index + whole.length
    if (!SHOWN.includes(language)) steps.push(stepOf(paragraph.replaceAll('\n', ' '), text))
  }
  return steps
}

/** Throws when the file does not match the page. */
export function applyStep(root: string, step: Exclude<Step, { readonly do: 'run' }>): void {
  const file = join(root, step.path)
  if (step.do === 'write') {
    mkdirSync(dirname(file), { recursive: true })
    // The step creates the file, so an existing file is an error.
    writeFileSync(file, step.text, { flag: 'wx' })
    return
  }
  const before = readFileSync(file, 'utf8')
  writeFileSync(file, 'line' in step ? changeLine(before, step) : before + step.text)
}

function changeLine(before: string, step: Extract<Step, { readonly line: string }>): string {
  const lines = before.split('\n')
  const matching = lines.flatMap((line, index) => (line.trim() === step.line ? [index] : []))
  const [index, ...others] = matching
  if (index === undefined || others.length > 0) {
    throw new Error(`${step.path}: ${matching.length} lines are \`${step.line}\`, want 1`)
  }
  const added = step.text.replace(/\n$/, '').split('\n')
  return lines
    .toSpliced(step.do === 'insert' ? index + 1 : index, step.do === 'insert' ? 0 : 1, ...added)
    .join('\n')
}

/** Code in one backtick, or in two when it contains one. */
const CODE = '(?:`` ?(.+?) ?``|`([^`]+)`)'

const INSTRUCTIONS = {
  write: new RegExp(`Write ${CODE}:$`),
  append: new RegExp(`In ${CODE}, at the end, add:$`),
  insert: new RegExp(`In ${CODE}, after the line ${CODE}, add:$`),
  replace: new RegExp(`In ${CODE}, in place of the line ${CODE}, write:$`),
}

function stepOf(instruction: string, text: string): Step {
  if (/\bRun:$/.test(instruction)) return { do: 'run', commands: text.trim().split('\n') }
  const codes = (pattern: RegExp) =>
    pattern
      .exec(instruction)
      ?.slice(1)
      .filter((code) => code !== undefined)
  for (const what of ['write', 'append'] as const) {
    const [path] = codes(INSTRUCTIONS[what]) ?? []
    if (path !== undefined) return { do: what, path, text }
  }
  for (const what of ['insert', 'replace'] as const) {
    const [path, line] = codes(INSTRUCTIONS[what]) ?? []
    if (path !== undefined && line !== undefined) return { do: what, path, line, text }
  }
  throw new Error(`a block without an instruction: ${JSON.stringify(instruction)}`)
}
