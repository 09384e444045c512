/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared object that is no plug-in.
 */
extern const int hcp_not_a_plugin;
__attribute__((visibility("default"))) const int hcp_not_a_plugin = 1;
