import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { projectRoot } from '../../src/build/project.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

describe('the lint configuration', () => {
  let folder = ''
  beforeEach(() => {
    folder = temporaryFolder()
    for (const name of ['biome.json', '.gitignore', 'tsconfig.json', 'scripts/lint']) {
      cpSync(join(projectRoot, name), join(folder, name), { recursive: true })
    }
  })

  it('reports a floating promise, also of a function from another file', async () => {
    seed('src/work.ts', 'export async function work(): Promise<number> {\n  return 1\n}\n')
    seed('src/start.ts', "import { work } from './work.ts'\nexport function start(): void {\n  work()\n}\n")
    expect(await reports()).toEqual(['lint/nursery/noFloatingPromises src/start.ts:3'])
  })

  it('reports an import cycle', async () => {
    seed('src/a.ts', "import { b } from './b.ts'\nexport const a = (): number => b()\n")
    seed('src/b.ts', "import { a } from './a.ts'\nexport const b = (): number => a()\n")
    const cycle = 'lint/suspicious/noImportCycles'
    expect(await reports()).toEqual([`${cycle} src/a.ts:1`, `${cycle} src/b.ts:1`])
  })

  it('reports long functions and long files', async () => {
    const lines = (count: number) => '  console.log(1)\n'.repeat(count)
    seed('src/long-function.ts', `export function f(): void {\n${lines(61)}}\n`)
    seed('src/long-file.ts', 'console.log(1)\n'.repeat(401))
    seed('test/long-test.ts', 'console.log(1)\n'.repeat(600))
    expect(await reports()).toEqual([
      'lint/complexity/noExcessiveLinesPerFunction src/long-function.ts:1',
      'lint/style/noExcessiveLinesPerFile src/long-file.ts:1',
    ])
  })

  it.each([
    ["import * as fs from 'node:fs'", 'fs.read(3, () => {})'],
    ["import * as fs from 'node:fs'", "fs.createReadStream('', { fd: 3 })"],
    ["import { Socket } from 'node:net'", 'new Socket({ fd: 3, readable: true }).resume()'],
    ["import * as tty from 'node:tty'", 'new tty.ReadStream(3).resume()'],
  ])('catches a pipe read by libuv: %s; %s', async (line, call) => {
    seed('src/os/pipes.ts', `${line}\n${call}\n`)
    expect(await reports()).toEqual(['plugin src/os/pipes.ts:2'])
  })

  it('reports such functions imported by name', async () => {
    seed('src/os/pipes.ts', "import { read } from 'node:fs'\nread(3, () => {})\n")
    expect(await reports()).toEqual(['lint/style/noRestrictedImports src/os/pipes.ts:1'])
  })

  function seed(path: string, text: string): void {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }

  async function reports(): Promise<readonly string[]> {
    const program = join(projectRoot, 'node_modules/@biomejs/biome/bin/biome')
    const args = [program, 'lint', '--reporter=github', 'src', 'test']
    const output = await new Promise<string>((resolve) => {
      execFile(process.execPath, args, { cwd: folder }, (_error, stdout) => resolve(stdout))
    })
    const found = output.matchAll(/^::error title=(?<rule>[^,]+),file=(?<file>[^,]+),line=(?<line>\d+)/gm)
    return [...found]
      .map(({ groups }) => `${groups?.rule} ${groups?.file?.replace(`${folder}/`, '')}:${groups?.line}`)
      .sort()
  }
})
