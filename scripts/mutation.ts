import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { projectRoot } from '../src/build/project.ts'
import { installNodeModules, nodeModulesMatch } from './setup/npm.mjs'
import { MUTATION_FOLDER, mutationTable, readMutationRun, strykerOptions } from './test/mutation-run.ts'

const folder = join(projectRoot, MUTATION_FOLDER)

/**
 * `npm run mutation -- [PATTERN]…`: changes the target files in small ways, and runs their tests on each change. Installs
 * Stryker first, whose 177 packages nothing else needs. The exit status is 1 when tests notice too little.
 */
function main(): number {
  try {
    const targets = readMutationRun(process.argv.slice(2))
    install()
    const options = join(folder, 'options.json')
    const report = join(folder, 'report.json')
    writeFileSync(options, JSON.stringify(strykerOptions(targets)))
    rmSync(report, { force: true })
    const program = join(folder, 'node_modules/@stryker-mutator/core/bin/stryker.js')
    const command = ['-n', '10', process.execPath, program, 'run', options]
    const { status, error } = spawnSync('nice', command, { cwd: projectRoot, stdio: 'inherit' })
    if (status !== 0) throw error ?? new Error(`Stryker ended with status ${status}`)
    const { lines, ok } = mutationTable(JSON.parse(readFileSync(report, 'utf8')), targets)
    for (const line of lines) console.log(line)
    return ok ? 0 : 1
  } catch (error) {
    console.error(`mutation: ${messageOf(error)}`)
    return 2
  }
}

function install(): void {
  mkdirSync(folder, { recursive: true })
  for (const name of ['package.json', 'package-lock.json', '.npmrc']) {
    copyFileSync(join(projectRoot, 'scripts/mutation', name), join(folder, name))
  }
  if (nodeModulesMatch(folder)) return
  console.log('mutation: installing Stryker')
  installNodeModules(folder)
}

process.exitCode = main()
