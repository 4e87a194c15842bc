import { AgentError } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type { KernelModule } from '../../gen/agent.ts'
import type { Os } from '../../os/os.ts'

/** Loads the modules in order. Throws INTERNAL at the first that cannot be loaded; earlier modules stay loaded. */
export async function loadKernelModules(
  os: Os,
  modules: readonly KernelModule[],
  signal: AbortSignal,
): Promise<void> {
  for (const { name, parameters } of modules) {
    // Such a name would be an option. The `--` keeps parameters with a leading dash from being options.
    if (name === '' || name.startsWith('-')) {
      throw new AgentError('INTERNAL', `invalid kernel module name '${name}'`, { fault: 'caller' })
    }
    const argv = ['/sbin/modprobe', '-v', '--', name, ...parameters] as const
    const result = await inStep('program', `modprobe ${name}`, () => os.tools.run(argv, { signal }))
    if (result.exitCode !== 0) {
      const text = `load_kernel_module return code: ${result.exitCode} for ${name}: ${result.stderr.trim()}`
      throw new AgentError('INTERNAL', text)
    }
  }
}
