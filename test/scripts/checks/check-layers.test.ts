import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  absentPaths,
  forbiddenImports,
  forbiddenImportsOf,
  layerFaults,
} from '../../../scripts/checks/check-layers.ts'
import { LAYERS } from '../../../scripts/layers/table.ts'
import { AGENT_SOURCES } from '../../../src/build/agent.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('forbiddenImportsOf', () => {
  it('allows the imports of the table', () => {
    const source = "import { log } from '../../base/log.ts'\nimport { Os } from '../../os/os.ts'\n"
    expect(forbiddenImportsOf('src/handlers/container/stats.ts', source)).toEqual([])
  })

  it('refuses an import in the other direction, with its place', () => {
    const source = "\nimport { a } from './a.ts'\nimport {\n  b,\n} from '../../handlers/sandbox/b.ts'\n"
    expect(forbiddenImportsOf('src/os/files/files.ts', source)).toEqual([
      'src/os/files/files.ts:3: src/os may not import src/handlers/sandbox/b.ts',
    ])
  })

  it('refuses a handler that imports its sibling', () => {
    expect(
      forbiddenImportsOf('src/handlers/storage/drivers/blk.ts', "import '../../container/registry.ts'\n"),
    ).toEqual([
      'src/handlers/storage/drivers/blk.ts:1: src/handlers/storage may not import src/handlers/container/registry.ts',
    ])
  })

  it('allows imports among the handlers in one direction', () => {
    const upward = "import { registry } from '../container/registry.ts'\n"
    expect(forbiddenImportsOf('src/handlers/process/exec-process.ts', upward)).toHaveLength(1)
    const downward = "import { Launch } from '../process/launch.ts'\n"
    expect(forbiddenImportsOf('src/handlers/container/create.ts', downward)).toEqual([])
  })

  it('allows the sandbox to import the other handlers', () => {
    const source = "import { registry } from '../container/registry.ts'\n"
    expect(forbiddenImportsOf('src/handlers/sandbox/create.ts', source)).toEqual([])
  })

  it.each(['src/agent/service/services.ts', 'src/handlers/guest/details.ts', 'src/oci/rlimits.ts'])(
    'keeps %s away from the kernel',
    (path) => {
      expect(forbiddenImportsOf(path, "import { readFile } from 'node:fs/promises'\n")).toHaveLength(1)
      expect(forbiddenImportsOf(path, "const { spawn } = await import('node:child_process')\n")).toHaveLength(
        1,
      )
      expect(forbiddenImportsOf(path, "import type { Socket } from 'node:net'\n")).toEqual([])
      expect(forbiddenImportsOf(path, "import { join } from 'node:path'\n")).toEqual([])
    },
  )

  it('refuses a package that the folder does not list', () => {
    expect(forbiddenImportsOf('src/base/log.ts', "import { parse } from 'smol-toml'\n")).toHaveLength(1)
    expect(forbiddenImportsOf('src/agent/config/file.ts', "import { parse } from 'smol-toml'\n")).toEqual([])
  })

  it('requires the agent to load the gRPC stack lazily', () => {
    const path = 'src/agent/transport/accept.ts'
    expect(forbiddenImportsOf(path, "import { serve } from '../../rpc/grpc/server.ts'\n")).toHaveLength(1)
    expect(forbiddenImportsOf(path, "import type { Serve } from '../../rpc/grpc/server.ts'\n")).toEqual([])
    const server = "'../../rpc/grpc/server.ts'"
    expect(forbiddenImportsOf(path, `load(() => import(${server}))\n`)).toEqual([])
  })

  it('checks re-exports too', () => {
    expect(forbiddenImportsOf('src/base/all.ts', "export * from '../gen/agent.ts'\n")).toHaveLength(1)
  })

  it('refuses a folder that is not in the table', () => {
    expect(forbiddenImportsOf('src/misc/things.ts', '')).toEqual([
      'src/misc/things.ts: is in no layer of scripts/layers/table.ts',
    ])
  })
})

describe('the table', () => {
  it('holds for this project', () => {
    expect(layerFaults(projectRoot)).toEqual([])
  })

  it('forbids the agent to import the host’s side', () => {
    const agent = AGENT_SOURCES.map((name) => `src/${name}`)
    const isAgent = (path: string) => agent.some((folder) => path === folder || path.startsWith(`${folder}/`))
    const imported = LAYERS.filter(({ folder }) => isAgent(folder)).flatMap(({ imports }) => imports)
    expect(imported.filter((path) => !isAgent(path) && path !== 'package.json')).toEqual([])
  })

  it.each([
    ['src/agent/app.ts', '../build/cache.ts'],
    ['src/os/linux-os.ts', '../debian/packages.ts'],
    ['src/debian/apt.ts', '../image/formats/tree.ts'],
    ['src/image/initrd.ts', '../microvm/vm.ts'],
    ['src/microvm/main.ts', '../../scripts/build.ts'],
    ['src/build/agent.ts', '../support/vm/boot-guest.ts'],
    ['bench/containers/exec.ts', '../../test/vm/agent/agent.test.ts'],
  ])('refuses that %s imports %s', (path, target) => {
    expect(forbiddenImportsOf(path, `import '${target}'\n`)).toHaveLength(1)
  })

  it('isolates the set-up, which runs before npm packages are installed', () => {
    const path = 'scripts/setup/launch.mjs'
    expect(forbiddenImportsOf(path, "import 'yaml'\n")).toHaveLength(1)
    expect(forbiddenImportsOf(path, "import '../../src/base/errors.ts'\n")).toHaveLength(1)
    expect(forbiddenImportsOf(path, "import '../../src/microvm/command-line/parse.mjs'\n")).toEqual([])
  })
})

describe('absentPaths', () => {
  it('names the folders and the imports of a table that do not exist', () => {
    const root = temporaryFolder()
    write(root, 'src/os/os.ts', '')
    const layers = [
      { folder: 'src/os', imports: ['src/base'] },
      { folder: 'src/gone/*', imports: ['src/os'] },
    ]
    expect(absentPaths(root, layers)).toEqual([
      'scripts/layers/table.ts: src/base does not exist',
      'scripts/layers/table.ts: src/gone does not exist',
    ])
  })
})

describe('forbiddenImports', () => {
  it('reports seeded violations and files without a layer anywhere in a tree', () => {
    const root = temporaryFolder()
    write(root, 'src/os/os.ts', "import { log } from '../base/log.ts'\n")
    write(root, 'src/base/log.ts', "import { clock } from '../os/clock.ts'\n")
    write(root, 'src/build/write.cjs', "const { run } = require('../microvm/vm.cjs')\n")
    write(root, 'tools/thing.mjs', '')
    write(root, 'loose.ts', '')
    write(root, 'node_modules/some/index.js', '')
    write(root, 'build/cache/agent.cjs', '')
    expect(forbiddenImports(root)).toEqual([
      'loose.ts: is in no layer of scripts/layers/table.ts',
      'src/base/log.ts:1: src/base may not import src/os/clock.ts',
      'src/build/write.cjs:1: src/build may not import src/microvm/vm.cjs',
      'tools/thing.mjs: is in no layer of scripts/layers/table.ts',
    ])
  })
})

function write(root: string, path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), text)
}
