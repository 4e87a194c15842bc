import { execFile } from 'node:child_process'
import { cpSync, existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { CHECK_CACHE } from '../../scripts/check.ts'
import { applyStep, stepsOf } from '../support/docs/page-steps.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const ROOT = join(import.meta.dirname, '../..')

const LEFT_OUT = ['.git', 'build', 'dist', 'node_modules']

/** The check covers the whole repository, so it runs once, after all pages. */
const CHECK = 'npm run check'

const TIMEOUT_MS = 300_000

describe('in a copy of the repository', () => {
  let copy = ''

  beforeAll(() => {
    copy = temporaryFolder()
    for (const name of readdirSync(ROOT)) {
      // A link to a file of the repository stays a link within it.
      const options = { recursive: true, verbatimSymlinks: true }
      if (!LEFT_OUT.includes(name)) cpSync(join(ROOT, name), join(copy, name), options)
    }
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
    const cache = join(ROOT, CHECK_CACHE)
    if (existsSync(cache)) cpSync(cache, join(copy, CHECK_CACHE), { recursive: true })
  })

  it.each(['CONTRIBUTING.md', 'docs/adding.md'])(
    'what %s says can be done to the letter',
    async (page) => {
      const steps = stepsOf(readFileSync(join(ROOT, page), 'utf8'))
      const commands: string[] = []
      for (const step of steps) {
        if (step.do !== 'run') applyStep(copy, step)
        else for (const command of step.commands) commands.push(await run(command))
      }
      expect(commands).toContain(CHECK)
    },
    TIMEOUT_MS,
  )

  it('passes the checks after all of them', () => runNow(CHECK), TIMEOUT_MS)

  async function run(command: string): Promise<string> {
    if (command !== CHECK) await runNow(command)
    return command
  }

  async function runNow(command: string): Promise<void> {
    const [program = '', ...args] = command.split(' ')
    // Leaves out the variables of the vitest that runs this file.
    const env = { PATH: process.env.PATH, HOME: process.env.HOME }
    try {
      await promisify(execFile)(program, args, { cwd: copy, env })
    } catch (error) {
      const output = error instanceof Error && 'stdout' in error ? error.stdout : ''
      throw new Error(`${command} failed:\n${output}`, { cause: error })
    }
  }
})

describe('the steps of a page', () => {
  it('are its blocks with instructions, without those that are only shown', () => {
    const page = [
      '# Page\n\nWrite `a.ts`:\n\n```ts\none\n```\n',
      '```mermaid\ngraph\n```\n',
      'Now. In `a.ts`, after the line\n`` `one` ``, add:\n\n```ts\ntwo\n```\n',
      'Run:\n\n```sh\nnpm a\nnpm b\n```\n',
    ].join('\n')
    expect(stepsOf(page)).toEqual([
      { do: 'write', path: 'a.ts', text: 'one\n' },
      { do: 'insert', path: 'a.ts', line: '`one`', text: 'two\n' },
      { do: 'run', commands: ['npm a', 'npm b'] },
    ])
  })

  it('are invalid when a block has no instruction', () => {
    expect(() => stepsOf('Look:\n\n```ts\none\n```\n')).toThrow('a block without an instruction: "Look:"')
  })
})
