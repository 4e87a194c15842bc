import { dirname } from 'node:path'
import { messageOf } from '../src/base/errors.ts'
import { checkPolicy } from '../src/client/policy/check-policy.ts'
import { findPolicyEngines } from '../src/client/policy/policy-engines.ts'
import { readInput } from '../src/ctl/methods/read-input.ts'
import { writeImageFolder } from '../src/image/image-folder.ts'
import {
  filesAsJson,
  filesAsLines,
  IMAGE_HELP,
  imageOptions,
  UsageError,
} from '../src/image/image-options.ts'
import { ensurePolicyAddon } from '../src/image/policy-addon.ts'

/** `npm run image`: writes the guest image for hypervisors and shims; see {@link IMAGE_HELP}. */
try {
  const options = imageOptions(process.argv.slice(2))
  if (options === 'help') process.stdout.write(IMAGE_HELP)
  else {
    const { policyFile } = options
    const policy = policyFile === undefined ? undefined : await checkedPolicy(policyFile)
    const files = await writeImageFolder({ ...options, policy, progress })
    process.stdout.write(
      options.json ? filesAsJson(options.folder, files) : filesAsLines(options.folder, files),
    )
  }
} catch (error) {
  console.error(`image: ${messageOf(error)}`)
  process.exitCode = error instanceof UsageError ? 2 : 1
}

async function checkedPolicy(file: string): Promise<string> {
  const bytes = readInput('--policy', file)
  const engines = findPolicyEngines(dirname((await ensurePolicyAddon(progress)).path))
  const { errors, warnings } = await checkPolicy(bytes, engines)
  const [fault] = errors
  if (fault !== undefined) {
    const place = fault.line === undefined ? '' : `:${fault.line}:${fault.column}`
    throw new Error(`--policy: ${file}${place}: ${fault.message}`)
  }
  for (const warning of warnings) progress(`--policy: ${file}: warning: ${warning}`)
  return bytes.toString()
}

function progress(line: string): void {
  console.error(`image: ${line}`)
}
